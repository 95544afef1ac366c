// Package projection keeps state that is folded from a log in Pebble: disposable,
// and always at one sequence.
//
// State and sequence are written in one batch, so a crash loses a tail of both or nothing. A
// projection is bound to what it was folded from; when that is gone, or the directory is
// deleted, it begins again.
package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Identity is what a projection is folded from, and by which fold.
type Identity struct {
	Stream   string    `json:"stream"`
	Created  time.Time `json:"created"` // a stream made again under the same name has another truth
	FirstSeq uint64    `json:"first_seq"`
	Fold     string    `json:"fold"` // name and version of the fold
}

// Same compares identities; times are equal when they are the same moment.
func (i Identity) Same(other Identity) bool {
	return i.Stream == other.Stream && i.Created.Equal(other.Created) &&
		i.FirstSeq == other.FirstSeq && i.Fold == other.Fold
}

// meta is the entry that binds state to sequence and origin.
type meta struct {
	Identity Identity `json:"identity"`
	Seq      uint64   `json:"seq"`
}

// Keys of the state have no leading zero byte, so this one is apart.
var metaKey = []byte("\x00meta")

// DB is one projection. One goroutine writes it.
type DB struct {
	db     *pebble.DB
	lock   *pebble.Lock
	full   *atomic.Bool // writes wait for room on the disk; nil in memory
	meta   meta
	firsts firsts
}

// Sizes that suit the small state of a decider; Pebble's defaults are for databases of their own.
const (
	cacheBytes    = 4 << 20
	memTableBytes = 2 << 20
)

// Open opens the projection in a directory, and empties it when it belongs to another identity or
// cannot be read: whatever is wrong with local state, the log has it all. A directory that another
// process has open is an error.
func Open(dir string, id Identity) (*DB, error) {
	full := new(atomic.Bool)
	d, err := openIn(waitForRoom(dir, full), dir, id)
	if err != nil {
		return nil, fmt.Errorf("open projection %s: %w", dir, err)
	}
	d.full = full
	return d, nil
}

// Memory makes a projection that lives in memory alone.
func Memory() (*DB, error) { return openIn(vfs.NewMem(), "projection", Identity{}) }

func openIn(fs vfs.FS, dir string, id Identity) (*DB, error) {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, fmt.Errorf("in use by another process: %w", err)
	}
	d, err := open(fs, dir, lock)
	if err == nil && d.meta.Identity.Same(id) {
		return d, nil
	}
	if err == nil {
		d.db.Close()
	}
	if err = empty(fs, dir); err == nil {
		d, err = open(fs, dir, lock)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	d.meta = meta{Identity: id}
	return d, nil
}

// open opens what is in a directory. Pebble panics where it finds its files in disorder.
func open(fs vfs.FS, dir string, lock *pebble.Lock) (d *DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	cache := pebble.NewCache(cacheBytes)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, Cache: cache, MemTableSize: memTableBytes,
		Logger: quiet{}, Lock: lock})
	if err != nil {
		return nil, err
	}
	d = &DB{db: db, lock: lock}
	value, closer, err := db.Get(metaKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return d, nil
	}
	if err == nil {
		err = json.Unmarshal(value, &d.meta)
		closer.Close()
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return d, nil
}

// empty removes what is in a directory, but not the lock on it.
func empty(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	for _, name := range names {
		if name != "LOCK" {
			err = errors.Join(err, fs.RemoveAll(fs.PathJoin(dir, name)))
		}
	}
	return err
}

// Corrupt reports whether an error says that the files of a projection cannot
// be trusted: delete them.
func Corrupt(err error) bool { return pebble.IsCorruptionError(err) || errors.Is(err, errFatal) }

// Seq is the last sequence that the state holds.
func (d *DB) Seq() uint64 { return d.meta.Seq }

// Close closes the projection. On a full disk it gives an error at once: Pebble goes on to wait for
// room, and holds the directory as long.
func (d *DB) Close() error {
	closed := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil { // as in open
				closed <- fmt.Errorf("%w: %v", errFatal, r)
			}
		}()
		closed <- errors.Join(d.db.Close(), d.lock.Close())
	}()
	look := time.NewTicker(roomPause)
	defer look.Stop()
	for {
		select {
		case err := <-closed:
			return err
		case <-look.C:
			if d.full != nil && d.full.Load() {
				return errors.New("the disk is full: what it has not taken is folded from the log again")
			}
		}
	}
}

// Begin starts a transaction over the state.
func (d *DB) Begin() *Tx {
	d.firsts.begin()
	return &Tx{db: d, batch: d.db.NewIndexedBatch(), open: true}
}

// Commit writes a transaction together with the sequence that the state then holds. It is not
// synced: a lost tail is folded again.
func (d *DB) Commit(tx *Tx, seq uint64) error {
	next := meta{Identity: d.meta.Identity, Seq: seq}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := tx.batch.Set(metaKey, value, nil); err != nil {
		return err
	}
	if err := tx.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	tx.end()
	d.meta = next
	return nil
}

// View reads state; a *DB and a *Tx are views.
type View interface {
	reader() pebble.Reader
	state() *DB
}

func (d *DB) reader() pebble.Reader { return d.db }
func (d *DB) state() *DB            { return d }
func (t *Tx) reader() pebble.Reader { return t.batch }
func (t *Tx) state() *DB            { return t.db }

// Tx is a transaction: it reads what it has written.
type Tx struct {
	db    *DB
	batch *pebble.Batch
	open  bool
}

// Discard drops a transaction that was not committed.
func (t *Tx) Discard() {
	t.end()
	t.batch.Close()
}

func (t *Tx) end() {
	if t.open {
		t.open = false
		t.db.firsts.end()
	}
}

// Delete removes a key; a key that is not there is no error.
func (t *Tx) Delete(key string) error { return t.batch.Delete([]byte(key), nil) }

// Put writes a value as JSON.
func Put[T any](tx *Tx, key string, v T) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	tx.db.firsts.put(key)
	return tx.batch.Set([]byte(key), data, nil)
}

// Get reads a value; false when it is not there.
func Get[T any](v View, key string) (value T, ok bool, err error) {
	data, closer, err := v.reader().Get([]byte(key))
	if errors.Is(err, pebble.ErrNotFound) {
		return value, false, nil
	}
	if err != nil {
		return value, false, fmt.Errorf("get %s: %w", key, err)
	}
	defer closer.Close()
	if err := json.Unmarshal(data, &value); err != nil {
		return value, false, fmt.Errorf("get %s: %w", key, err)
	}
	return value, true, nil
}

// Scan reads all values whose key begins with prefix, in the order of their keys.
func Scan[T any](v View, prefix string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		firsts := &v.state().firsts
		from, at := firsts.start(prefix)
		end := endOfPrefix(prefix)
		it, err := v.reader().NewIter(&pebble.IterOptions{LowerBound: []byte(from), UpperBound: end})
		if err != nil {
			yield(none, fmt.Errorf("scan %s: %w", prefix, err))
			return
		}
		defer it.Close()
		var behind []byte
		ok := it.First()
		if ok {
			end = it.Key()
		}
		if it.Error() == nil {
			firsts.remember(prefix, string(end), at)
		}
		// Next would pass all values that the key ever had, and a rollout has one for each turn
		for ; ok; ok = it.SeekGE(behind) {
			behind = append(append(behind[:0], it.Key()...), 0)
			var value T
			if err := json.Unmarshal(it.Value(), &value); err != nil {
				yield(none, fmt.Errorf("scan %s: %s: %w", prefix, it.Key(), err))
				return
			}
			if !yield(value, nil) {
				return
			}
		}
		if err := it.Error(); err != nil {
			yield(none, fmt.Errorf("scan %s: %w", prefix, err))
		}
	}
}

// endOfPrefix is the first key behind all that begin with prefix. Prefixes end
// in a printable character.
func endOfPrefix(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

// errFatal is what Pebble cannot go on from.
var errFatal = errors.New("projection")

// quiet drops Pebble's running commentary; its errors reach the caller.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Errorf("%w: "+format, append([]any{errFatal}, args...)...))
}
