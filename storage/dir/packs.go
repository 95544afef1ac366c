package dir

import (
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

const (
	packFolder = ".packs" // beside the objects; no key has such a part
	packEnding = ".pack"
	goneEnding = ".gone"
)

// packs is what the packs of a folder hold. All of it is in the files: another process that has the store open finds it there.
type packs struct {
	store  *Store
	folder string // of the packs

	mu   sync.Mutex
	made os.FileInfo // of the folder, when its names were read
	// root is the folder: a path of one name is opened faster. It is nil while there is none.
	root  *os.Root
	known map[string]*pack
	// objects are found by the digest of their names, which is shorter. Of several of one name the newest is first.
	objects map[[16]byte]*packed

	packWriter
}

// pack is one file.
type pack struct {
	name    string
	scanned int64 // its records up to here are known
	gone    int64 // and what was deleted, up to here
	noted   bool  // something of it was deleted
	sealed  bool  // all of it is known, and on the disk
	own     bool  // this process appends to it
	held    int   // objects in it
}

// packed is where an object lies.
type packed struct {
	pack     *pack
	at       int64 // of its record
	modified int64 // nanoseconds since 1970
	older    *packed
	size     int32
	name     uint16 // bytes
	gone     bool
}

func (o *packed) data() int64 { return o.at + packHead + int64(o.name) }

func nameOf(name string) [16]byte {
	sum := sha256.Sum256([]byte(name))
	return [16]byte(sum[:16])
}

// packsOf are those of a folder, to add to.
func (s *Store) packsOf(folder string) *packs {
	s.packsMu.Lock()
	defer s.packsMu.Unlock()
	p := s.packs[folder]
	if p == nil {
		p = &packs{store: s, folder: path.Join(folder, packFolder), packWriter: packWriter{turn: make(chan struct{}, 1)}}
		p.forget()
		s.packs[folder] = p
	}
	return p
}

// findPacked opens an object that lies in a pack. storage.ErrNotFound.
func (s *Store) findPacked(key string) (object, error) {
	p, err := s.packsIn(path.Dir(key))
	if err != nil {
		return object{}, err
	}
	if p == nil {
		return object{}, storage.ErrNotFound
	}
	return p.find(path.Base(key))
}

// packsIn are those of a folder; nil where there are none, as in most.
func (s *Store) packsIn(folder string) (*packs, error) {
	s.packsMu.Lock()
	p := s.packs[folder]
	s.packsMu.Unlock()
	if p != nil {
		return p, nil
	}
	switch _, err := s.root.Stat(path.Join(folder, packFolder)); {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return s.packsOf(folder), nil
}

// forget drops what is known.
func (p *packs) forget() {
	p.made, p.known, p.objects = nil, map[string]*pack{}, map[[16]byte]*packed{}
	p.closeRoot()
}

func (p *packs) closeRoot() {
	if p.root != nil {
		_ = p.root.Close() // of a folder
		p.root = nil
	}
}

// find opens an object. storage.ErrNotFound.
func (p *packs) find(name string) (object, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := nameOf(name)
	if o := p.objects[id]; o != nil {
		found, err := p.open(o)
		if !errors.Is(err, fs.ErrNotExist) {
			return found, err
		}
	}
	if err := p.refresh(); err != nil {
		return object{}, err
	}
	o := p.objects[id]
	if o == nil {
		return object{}, storage.ErrNotFound
	}
	found, err := p.open(o)
	if errors.Is(err, fs.ErrNotExist) {
		err = storage.ErrNotFound
	}
	return found, err
}

// open opens an object, and fails with fs.ErrNotExist where another process has deleted it.
func (p *packs) open(o *packed) (object, error) {
	if err := p.readGone(o.pack); err != nil {
		return object{}, err
	}
	if o.gone {
		return object{}, fs.ErrNotExist
	}
	file, err := p.root.Open(o.pack.name + packEnding)
	if err != nil {
		return object{}, err
	}
	content := io.NewSectionReader(file, o.data(), int64(o.size))
	return object{content: content, file: file, size: int64(o.size), modified: time.Unix(0, o.modified), unsynced: !o.pack.own && !o.pack.sealed}, nil
}

// refresh reads what was added or removed since the last time.
func (p *packs) refresh() error {
	made, err := p.store.root.Stat(p.folder)
	if missing(err) {
		p.forget()
		return nil
	}
	if err != nil {
		return err
	}
	if p.made == nil || !os.SameFile(p.made, made) || !made.ModTime().Equal(p.made.ModTime()) || time.Since(made.ModTime()) < settled {
		if err := p.readNames(made); err != nil {
			return err
		}
	}
	for _, each := range p.known {
		err := p.scan(each)
		if err == nil && each.noted {
			err = p.readGone(each)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// settled is how long two changes of a folder may have the same time.
const settled = 2 * time.Second

func (p *packs) readNames(made os.FileInfo) (err error) {
	if p.made != nil && !os.SameFile(p.made, made) {
		p.forget()
	}
	if p.root == nil {
		if p.root, err = p.store.root.OpenRoot(p.folder); err != nil {
			return err
		}
	}
	entries, err := fs.ReadDir(p.root.FS(), ".")
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), packEnding); is {
			there[name] = true
			if p.known[name] == nil {
				p.known[name] = &pack{name: name}
			}
		}
	}
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), goneEnding); is && there[name] {
			p.known[name].noted = true
		}
	}
	for name, each := range p.known {
		if !there[name] {
			p.removed(each)
		}
	}
	p.made = made
	return nil
}

// scan reads a pack's new records.
func (p *packs) scan(each *pack) error {
	if each.sealed || each.own {
		return nil
	}
	file, err := p.root.Open(each.name + packEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	over, err := tryLock(file)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	found, end, sealed, err := scan(file, each.scanned, info.Size())
	if err != nil {
		return err
	}
	for _, r := range found {
		p.add(each, r)
	}
	each.scanned, each.sealed = end, sealed
	if over && end > 0 && !sealed { // its writer is dead: it had locked it before it wrote the first record
		each.sealed = file.Sync() == nil
	}
	return nil
}

// readGone takes out what was deleted since the last time.
func (p *packs) readGone(each *pack) error {
	file, err := p.root.Open(each.name + goneEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() <= each.gone {
		return err
	}
	places, err := gone(file, each.gone, info.Size())
	if err != nil || len(places) == 0 {
		return err
	}
	pack, err := p.root.Open(each.name + packEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pack.Close()
	for _, at := range places {
		if at >= each.scanned {
			return nil // of a record that is not known yet
		}
		if at >= 0 {
			r, err := readRecord(pack, at)
			if err != nil {
				return err
			}
			p.drop(each, r)
		}
		each.gone += goneSize
	}
	return nil
}

func (p *packs) add(each *pack, r record) {
	id := nameOf(r.name)
	each.held++
	p.objects[id] = newest(p.objects[id], &packed{pack: each, at: r.at, size: int32(r.size), name: uint16(len(r.name)), modified: r.modified.UnixNano()})
}

// newest puts an object among those of its name.
func newest(first, o *packed) *packed {
	if first == nil || o.modified >= first.modified {
		o.older = first
		return o
	}
	first.older = newest(first.older, o)
	return first
}

// drop takes an object out.
func (p *packs) drop(each *pack, r record) {
	id := nameOf(r.name)
	first := p.objects[id]
	for link := &first; *link != nil; link = &(*link).older {
		if o := *link; o.pack == each && o.at == r.at {
			*link, o.gone = o.older, true
			each.held--
			break
		}
	}
	p.keepFirst(id, first)
}

// removed takes a pack out that is not there any more.
func (p *packs) removed(each *pack) {
	for id, first := range p.objects {
		for link := &first; *link != nil; {
			if o := *link; o.pack == each {
				*link, o.gone = o.older, true
				continue
			}
			link = &(*link).older
		}
		p.keepFirst(id, first)
	}
	delete(p.known, each.name)
}

func (p *packs) keepFirst(id [16]byte, first *packed) {
	if first == nil {
		delete(p.objects, id)
		return
	}
	p.objects[id] = first
}
