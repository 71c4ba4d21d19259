"""Object stores (S3, GCS, Azure) through fsspec: what is fetched from one, and copied to one."""
