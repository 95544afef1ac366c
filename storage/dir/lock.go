package dir

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// stripes is the number of lock files: enough that unrelated writers seldom meet,
// few enough to hold open.
const stripes = 64

// keyLock excludes the writers of a stripe of keys: goroutines by the channel, other
// processes by a lock on the file.
type keyLock struct {
	held chan struct{}
	file *os.File
}

// lock holds the stripe of a key until the returned function is called.
func (s *Store) lock(ctx context.Context, key string) (unlock func(), err error) {
	hash := fnv.New32a()
	hash.Write([]byte(key))
	l := &s.locks[hash.Sum32()%stripes]
	select {
	case l.held <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := lockExclusive(l.file); err != nil {
		<-l.held
		return nil, fmt.Errorf("lock: %w", err)
	}
	return func() {
		// A failed unlock would only mean that the file is closed, and closing unlocks too.
		_ = unlockFile(l.file)
		<-l.held
	}, nil
}

func (s *Store) openLocks() error {
	for i := range s.locks {
		file, err := s.root.OpenFile(fmt.Sprintf("%s/%02x", locks, i), os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		s.locks[i] = keyLock{held: make(chan struct{}, 1), file: file}
	}
	return nil
}

func (s *Store) closeLocks() error {
	var err error
	for i := range s.locks {
		if file := s.locks[i].file; file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}
