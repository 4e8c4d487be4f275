# A client that does not read its replies is first in the queue of a key: what becomes of the others?
import sys,time,socket
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
P=int(sys.argv[1]); adm=Conn(P,timeout=60)
adm.cmd('FLUSHALL')
try: PAUSE=int(adm.cmd('CONFIG','GET','client-output-buffer-pause')[2])
except Exception: PAUSE=64<<20
adm.cmd('SET','small',b'x'*(4<<20) )
adm.cmd('SET','s2',b'y'*(230<<10))
A=Conn(P,timeout=60)
A.s.setsockopt(socket.SOL_SOCKET,socket.SO_RCVBUF,4096)
A.raw(A.enc(['GET','small'])); time.sleep(.5)  # fills the socket's buffers
l=[x for x in adm.cmd('CLIENT','LIST').decode().split('\n') if 'cmd=get' in x][0]
om=int(dict(y.split('=',1) for y in l.split())['omem']); adm.cmd('SET','big',b'x'*(PAUSE-om-(60<<10)))
A.raw(A.enc(['GET','big'])); time.sleep(.3)
def qlen():
    l=[x for x in adm.cmd('CLIENT','LIST').decode().split('\n') if 'cmd=blpop' in x or 'cmd=get' in x]; return l
A.raw(A.enc(['GET','s2'])+A.enc(['BLPOP','jobs','0']))
time.sleep(.7)
print([ {k:v for k,v in (y.split('=',1) for y in x.split()) if k in('omem','obl','flags','cmd')} for x in qlen()], 'pause',PAUSE)
B=Conn(P,timeout=60); B.send('BLPOP','jobs','0'); time.sleep(.3)
print('blocked',[l for l in adm.cmd('INFO','clients').decode().split('\r\n') if 'blocked' in l])
t=time.time(); adm.cmd('RPUSH','jobs','1','2')
drip=len(sys.argv)>2
while not B.pending(.1) and time.time()-t<20:
    if drip: A.s.recv(1024)
print('B served after %.2f s, list has %s'%(time.time()-t,adm.cmd('LLEN','jobs')), B.read() if B.pending() else 'NOTHING'); A.close(); B.close(); adm.cmd('FLUSHALL')
