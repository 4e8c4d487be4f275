import sys,time,os,socket
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
def st(pid,k): return int([l for l in open('/proc/%d/status'%pid) if l.startswith(k)][0].split()[1])/1024
def cpu(pid):
    f=open('/proc/%d/stat'%pid).read().split(')')[1].split(); return (int(f[11])+int(f[12]))/100
N=9000
import resource; resource.setrlimit(resource.RLIMIT_NOFILE,(20000,20000))
for name,port,pid in (('redis',7954,int(os.popen('redis-cli -p 7954 info server | grep process_id').read().split(':')[1])),('mneme',7953,int(open('/tmp/rb/m53.pid').read()))):
  for same in (False,True):
    adm=Conn(port,timeout=300); adm.cmd('FLUSHALL'); a=st(pid,'RssAnon'); cs=[Conn(port,timeout=300) for _ in range(N)]
    for c in cs[:10]: c.cmd('PING')
    time.sleep(1); b=st(pid,'RssAnon'); t0=cpu(pid)
    for i,c in enumerate(cs): c.send('BLPOP','k' if same else 'k%d'%i,'0')
    while ('blocked_clients:%d\r'%N).encode() not in adm.cmd('INFO','clients'): time.sleep(.1)
    d=st(pid,'RssAnon'); print(name,'same key' if same else 'own keys','idle conn %.0f B, blocked +%.0f B; cpu of blocking %.2f'%((b-a)*2**20/N,(d-b)*2**20/N,cpu(pid)-t0),flush=True)
    t0=cpu(pid); n=2000
    for _ in range(n): adm.cmd('RPUSH','other','x'); adm.cmd('DEL','other')
    print(' push+del of another key %.0f us'%((cpu(pid)-t0)/n*1e6))
    t0=cpu(pid); 
    for _ in range(3): adm.cmd('SWAPDB','0','1')
    time.sleep(1); adm.cmd('PING'); print(' SWAPDB %.1f ms'%((cpu(pid)-t0)/3*1000))
    if same:
        t0=cpu(pid); adm.cmd('RPUSH','k',*['x']*4000); time.sleep(1)
        while ('blocked_clients:%d\r'%(N-4000)).encode() not in adm.cmd('INFO','clients'): time.sleep(.1)
        print(' push of 4000 to it: cpu %.2f'%(cpu(pid)-t0)); ok=[c.read()[-1] for c in cs[:4000]]; print(' served in order of arrival',len(ok))
    t0=cpu(pid); t=time.time(); [c.close() for c in cs]
    while b'blocked_clients:0\r' not in adm.cmd('INFO','clients'): time.sleep(.1)
    print(' disconnects cpu %.2f wall %.1f'%(cpu(pid)-t0,time.time()-t),flush=True)
    adm.cmd('FLUSHALL')
