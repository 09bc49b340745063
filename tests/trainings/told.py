import pickle, sys


class Kept:
    pass


kept = type(pickle.loads(pickle.dumps(Kept()))) is sys.modules["__main__"].Kept
print(sys.argv, __name__, __file__, sys.path[0], kept, __package__, __spec__ and __spec__.name, sys.stdin.read())
