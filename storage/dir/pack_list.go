package dir

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/rondo-rl/rondo/storage"
)

// list gives what the packs of a folder hold, once each, in no order.
func (p *packs) list(folder string) ([]storage.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(); err != nil {
		return nil, err
	}
	places := p.index.all()
	infos := make([]storage.Info, 0, len(places))
	for len(places) > 0 {
		n := slices.IndexFunc(places, func(at place) bool { return at.pack != places[0].pack })
		if n < 0 {
			n = len(places)
		}
		var err error
		if infos, err = p.describe(folder, places[:n], infos); err != nil {
			return nil, err
		}
		places = places[n:]
	}
	if len(p.index.more) > 0 { // some may have been packed several times: the newest counts
		slices.SortFunc(infos, func(a, b storage.Info) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key),
				b.Modified.Compare(a.Modified))
		})
		infos = slices.CompactFunc(infos, func(a, b storage.Info) bool { return a.Key == b.Key })
	}
	return infos, nil
}

// describe adds the objects at places of one pack.
func (p *packs) describe(folder string, places []place, infos []storage.Info) ([]storage.Info, error) {
	each := p.numbered[places[0].pack]
	file, err := p.root.Open(each.name + packEnding)
	if missing(err) { // removed meanwhile
		return infos, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for _, at := range places {
		r, err := readRecord(file, at.offset())
		if err != nil {
			return nil, fmt.Errorf("pack %s at %d: %w", each.name, at.offset(), err)
		}
		infos = append(infos, storage.Info{Key: path.Join(folder, r.name), Size: r.size, Modified: r.modified})
	}
	return infos, nil
}
