import sys,time,os
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
def cpu(pid):
    f=open('/proc/%d/stat'%pid).read().split(')')[1].split(); return (int(f[11])+int(f[12]))/100
for name,port,pid in (('redis',7951,int(os.popen('redis-cli -p 7951 info server | grep process_id').read().split(':')[1])),('mneme',7953,int(open('/tmp/rb/m53.pid').read()))):
    c=Conn(port,timeout=500)
    for cmd in ('RPUSH','LPUSH'):
        for n in (20000,40000,80000,100000):
            if name=='mneme' and cmd=='RPUSH' and n>100000: continue
            c.cmd('DEL','L'); a=cpu(pid); t=time.time(); r=c.cmd(cmd,'L',*(['x%08d'%i for i in range(n)])); print(name,cmd,n,'wall %.2f cpu %.2f'%(time.time()-t,cpu(pid)-a),r,flush=True)
    c.cmd('DEL','L')
