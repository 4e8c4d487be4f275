import sys,time
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
c=Conn(7955,timeout=60)
for b in range(20): c.cmd('RPUSH','l',*['x'*1000]*400)
for n in range(200): c.cmd('RPUSH','small%d'%n,'a','b','c')
i=0
while 1:
    r=c.cmd('SET','f%d'%i,'y'*50000); i+=1
    if r!=('+',b'OK'): break
while 1:
    r=c.cmd('SET','g%d'%i,'y'*500); i+=1
    if r!=('+',b'OK'): break
print('full:',r)
for cmd in (['LPOP','l'],['RPOP','l'],['LTRIM','l','0','100'],['LREM','l','1','x'*1000],['LPOP','small1'],['BLPOP','l','1'],['BLPOP','small2','1'],['LMOVE','l','small3','LEFT','LEFT'],['SPOP','nope']):
    t=time.time(); r=c.cmd(*cmd); print(cmd[:2],repr(r)[:90],'%.2f s'%(time.time()-t))
