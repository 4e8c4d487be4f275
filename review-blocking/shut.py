import sys,time,os,signal
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=7955; pid=int(open('m55.pid').read())
pids=os.popen('pgrep -P %d'%pid).read()
a=Conn(P); a.cmd('FLUSHALL'); ws=[Conn(P) for _ in range(50)]
for w in ws: w.send('BLPOP','k','0')
time.sleep(.3); print(a.cmd('INFO','clients').decode().split('blocked_clients')[1][:5]); real=int(a.cmd('INFO','server').decode().split('process_id:')[1].split('\r')[0])
t=time.time(); os.kill(real,15)
r=[]
for w in ws:
    try: r.append(w.read())
    except Exception as e: r.append(repr(e))
print(set(map(str,r)),'%.2f s'%(time.time()-t))
