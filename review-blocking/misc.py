import sys,time
sys.path.insert(0,__import__('os').path.dirname(__import__('os').path.abspath(__file__)))
from resp import Conn
for name,P in (('redis',7954),('mneme',7953)):
    c=Conn(P,timeout=60); c.cmd('FLUSHALL'); L='K'*70000
    c.cmd('SADD','s','m','n'); print(name,'SMOVE to long key',c.cmd('SMOVE','s',L,'m'),c.cmd('SCARD','s'))
    c.cmd('DEL','s',L); c.cmd('SADD','s','m','n'); c.cmd('MULTI'); c.cmd('SMOVE','s',L,'m'); c.cmd('SET','after','1'); print(name,'in MULTI',c.cmd('EXEC'),'left',c.cmd('SMEMBERS','s'),'after',c.cmd('GET','after'))
    c.cmd('FLUSHALL'); c.cmd('RPUSH','l','m','n'); c.cmd('MULTI'); c.cmd('LMOVE','l',L,'LEFT','LEFT'); c.cmd('RPOPLPUSH','l',L); print(name,'LMOVE in MULTI',c.cmd('EXEC'),c.cmd('LRANGE','l','0','-1'))
    c.cmd('FLUSHALL'); c.cmd('SADD','a','1'); c.cmd('MULTI'); c.cmd('SUNIONSTORE',L,'a'); c.cmd('COPY','a',L); c.cmd('RENAME','a',L); print(name,'others',c.cmd('EXEC'),c.cmd('SMEMBERS','a')); 
    c.cmd('FLUSHALL'); c.cmd('RPUSH','l','m','n'); c.cmd('EXPIRE','l','100'); c.cmd('SADD','s',1); c.cmd('EXPIRE','s','100')
    for x in (['LMOVE','l','l','LEFT','RIGHT'],['LSET','l','0','x'],['LINSERT','l','BEFORE','x','y'],['LREM','l','1','y'],['LTRIM','l','0','1'],['SADD','s','b'],['SREM','s','b']): c.cmd(*x)
    print(name,'ttl kept',c.cmd('TTL','l'),c.cmd('TTL','s'),end=' ')
    c.cmd('SUNIONSTORE','s','s'); print('store',c.cmd('TTL','s'),end=' '); c.cmd('COPY','l','l2'); print(c.cmd('TTL','l2'))
    c.cmd('FLUSHALL'); big='z'*66000; print(name, 'big member', c.cmd('SADD','s',big), [c.cmd('SADD','s2',*['m%d'%i for i in range(600)])], c.cmd('SADD','s2',big), c.cmd('SMOVE','s','s2',big), c.cmd('SISMEMBER','s',big), c.cmd('SUNIONSTORE','t','s','s2'),c.cmd('SINTERCARD','2','s','s2'),c.cmd('SISMEMBER','s2',big))
    c.cmd('FLUSHALL')
    # set grown by members of long, packed
    c.close()
