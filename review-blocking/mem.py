import sys,time,os
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
def rss(pid): return int([l for l in open('/proc/%d/status'%pid) if l.startswith('RssAnon')][0].split()[1])/1024
def cpu(pid):
    f=open('/proc/%d/stat'%pid).read().split(')')[1].split(); return (int(f[11])+int(f[12]))/100
N=200000
for name,port,pid in (('redis',7954,int(os.popen('redis-cli -p 7954 info server | grep process_id').read().split(':')[1])),('mneme',7953,int(open('/tmp/rb/m53.pid').read()))):
    adm=Conn(port,timeout=300); a=rss(pid); c=Conn(port,timeout=300); i=str(c.cmd('CLIENT','ID')); t0=cpu(pid)
    c.s.sendall(Conn.enc(['BLPOP']+['key:%06d'%j for j in range(N)]+['0']))
    while b'blocked_clients:1\r' not in adm.cmd('INFO','clients'): time.sleep(.05)
    b=rss(pid); l=[x for x in adm.cmd('CLIENT','LIST').decode().split('\n') if x.startswith('id=%s '%i)][0]
    f=dict(x.split('=',1) for x in l.split())
    print(name,'BLPOP of %d keys: RssAnon +%.1f MiB, %.0f B a key; CLIENT LIST qbuf=%s qbuf-free=%s tot-mem=%s; cpu %.2f'%(N,b-a,(b-a)*2**20/N,f['qbuf'],f['qbuf-free'],f['tot-mem'],cpu(pid)-t0),flush=True)
    # amplification: EXEC of a push and a pop of one of its keys
    o=Conn(port,timeout=300); t0=cpu(pid); t=time.time(); n=20
    for _ in range(n):
        o.raw(o.enc(['MULTI'])+o.enc(['RPUSH','key:000001','x'])+o.enc(['LPOP','key:000001'])+o.enc(['EXEC'])); [o.read() for _ in range(4)]
    time.sleep(.5); adm.cmd('PING'); print(name,'an EXEC of a push and a pop of one of its keys costs %.1f ms of cpu'%((cpu(pid)-t0)/n*1000))
    t0=cpu(pid); n=2000
    for _ in range(n): o.cmd('RPUSH','other','x'); o.cmd('DEL','other')
    print(name,'push+del of another key: %.1f us cpu'%((cpu(pid)-t0)/n*1e6))
    t0=cpu(pid); c.close()
    while b'blocked_clients:0\r' not in adm.cmd('INFO','clients'): time.sleep(.05)
    print(name,'its disconnection: cpu %.2f'%(cpu(pid)-t0)); adm.cmd('FLUSHALL')
