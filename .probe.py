import sys,time
sys.path.insert(0,"/work/main")
from torchscale.util.redaction import redact_text
for t in ("token "+"\\"*200000, "'--a',"*50000+"token", "\"--token\","*50000, "curl "*40000, "curl -u "*20000, "--token "*50000, "a_token\\\\\\\\"*20000, "wandb login --x "*20000, "token="*50000, "'--token', "+" "*200000, ("rank 0: step 12 loss 2.345 token ok key: 3 pass 1\n"*20000), "-----BEGIN PRIVATE KEY"*5000, "x"*1000000+" token", "_"*200000+"token=", "token"+"."*200000, "1."*100000+" token=", "per_token="+"1"*100000+".","per_token="*20000+"1.5"):
    b=time.time(); redact_text(t,()); d=time.time()-b
    if d>0.3: print(round(d,2),repr(t[:30]),len(t))
