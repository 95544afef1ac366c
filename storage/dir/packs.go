package dir

import (
	"errors"
	"fmt"
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

// packs is what the packs of a folder hold. All of it is in the files: another process that has the
// store open finds it there.
type packs struct {
	store  *Store
	folder string // of the packs

	mu   sync.Mutex
	made os.FileInfo // of the folder, when its names were read
	// root is the folder: a path of one name is opened faster. It is nil while there is none.
	root  *os.Root
	known map[string]*pack
	// numbered are the same packs by their numbers. Numbers are not used again.
	numbered map[uint32]*pack
	last     uint32
	index    packIndex

	packWriter
}

// pack is one file.
type pack struct {
	name    string
	number  uint32
	scanned int64 // its records up to here are known
	gone    int64 // and what was deleted, up to here
	noted   bool  // something of it was deleted
	sealed  bool  // all of it is known, and on the disk
	own     bool  // this process appends to it
	held    int   // objects in it
}

// packsOf are those of a folder, to add to.
func (s *Store) packsOf(folder string) *packs {
	s.packsMu.Lock()
	defer s.packsMu.Unlock()
	p := s.packs[folder]
	if p == nil {
		p = &packs{store: s, folder: path.Join(folder, packFolder),
			packWriter: packWriter{turn: make(chan struct{}, 1)}}
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
	p.made, p.known, p.numbered, p.index = nil, map[string]*pack{}, map[uint32]*pack{}, newPackIndex()
	p.closeRoot()
}

// learn adds a pack.
func (p *packs) learn(name string) *pack {
	p.last++
	each := &pack{name: name, number: p.last}
	p.known[name], p.numbered[each.number] = each, each
	return each
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
	found, err := p.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.refresh(); err != nil {
			return object{}, err
		}
		found, err = p.open(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = storage.ErrNotFound
	}
	return found, err
}

// open opens the newest object of a name, and fails with fs.ErrNotExist where there is none, or
// another process has deleted it.
func (p *packs) open(name string) (newest object, err error) {
	for _, at := range p.index.places(name) {
		if err := p.readGone(p.numbered[at.pack]); err != nil {
			return object{}, err
		}
	}
	for _, at := range p.index.places(name) {
		found, err := p.openAt(name, at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && newest.file != nil && found.modified.Before(newest.modified):
			found.Close()
			continue
		}
		if newest.file != nil {
			newest.Close()
		}
		if newest = found; err != nil {
			return object{}, err
		}
	}
	if newest.file == nil {
		return object{}, fs.ErrNotExist
	}
	return newest, nil
}

// openAt opens the object at a place, and fails with fs.ErrNotExist where one of another name lies.
func (p *packs) openAt(name string, at place) (object, error) {
	each := p.numbered[at.pack]
	file, err := p.root.Open(each.name + packEnding)
	if err != nil {
		return object{}, err
	}
	r, err := readRecord(file, at.offset())
	switch {
	case err != nil:
		err = fmt.Errorf("pack %s at %d: %w", each.name, at.offset(), err)
	case r.name != name:
		err = fs.ErrNotExist
	}
	if err != nil {
		return object{}, errors.Join(err, file.Close())
	}
	content := io.NewSectionReader(file, r.data(), r.size)
	return object{content: content, file: file, size: r.size, modified: r.modified,
		unsynced: !each.own && !each.sealed}, nil
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
	if p.made == nil || !os.SameFile(p.made, made) || !made.ModTime().Equal(p.made.ModTime()) ||
		time.Since(made.ModTime()) < settled {
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
				p.learn(name)
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
	places, err := deletedPlaces(file, each.gone, info.Size())
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
	if r.at < maxPlace {
		each.held++
		p.index.add(r.name, placeOf(each, r))
	}
}

func placeOf(each *pack, r record) place { return place{each.number, uint32(r.at / 8)} }

// drop takes an object out.
func (p *packs) drop(each *pack, r record) {
	if p.index.remove(r.name, placeOf(each, r)) {
		each.held--
	}
}

// removed takes a pack out that is not there any more.
func (p *packs) removed(each *pack) {
	p.index.removePack(each.number)
	delete(p.known, each.name)
	delete(p.numbered, each.number)
}
