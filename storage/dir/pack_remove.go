package dir

import (
	"errors"
	"io/fs"
	"os"
)

// remove deletes an object from all packs that hold it.
func (p *packs) remove(name string) error {
	if err := p.noteAll(name); err != nil {
		return err
	}
	return p.discardEmpty()
}

func (p *packs) noteAll(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(); err != nil {
		return err
	}
	places := map[*pack][]int64{}
	for _, at := range p.index.places(name) {
		found, err := p.openAt(name, at)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		found.Close()
		each := p.numbered[at.pack]
		places[each] = append(places[each], at.offset())
	}
	for each, at := range places {
		if err := errors.Join(p.note(each, at), p.readGone(each)); err != nil {
			return err
		}
	}
	return nil
}

// discardEmpty removes the packs of which nothing is left, also that of this process, which
// begins another one then.
func (p *packs) discardEmpty() error {
	if p.isOwnEmpty() {
		select {
		case p.turn <- struct{}{}:
			var err error
			if p.isOwnEmpty() { // nobody has added to it meanwhile
				err = p.seal()
			}
			<-p.turn
			if err != nil {
				return err
			}
		default: // somebody adds to it
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, each := range p.known {
		if each.noted && each.held == 0 {
			if err := p.discard(each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *packs) isOwnEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own != nil && p.own.noted && p.own.held == 0
}

// note writes down what of a pack was deleted, and returns when that is on the disk.
func (p *packs) note(each *pack, places []int64) (err error) {
	file, err := p.root.OpenFile(each.name+goneEnding, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	each.noted = true
	return errors.Join(lockExclusive(file), appendGone(file, places), p.store.sync(p.folder))
}

// discard removes a pack of which nothing is left, and that nobody adds to.
func (p *packs) discard(each *pack) (err error) {
	if each.held > 0 || each.own {
		return nil
	}
	file, err := p.root.Open(each.name + packEnding)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	free, err := tryLock(file)
	if err != nil || !free {
		return err
	}
	// Its writer may have added to it before it let it go.
	if err := errors.Join(p.scan(each), p.readGone(each)); err != nil || each.held > 0 {
		return err
	}
	// Its notes go behind it: without them what was deleted would be there again.
	if err := errors.Join(p.root.Remove(each.name+packEnding), p.store.sync(p.folder)); err != nil {
		return err
	}
	p.removed(each)
	return p.root.Remove(each.name + goneEnding)
}
