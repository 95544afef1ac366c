package dir

import (
	"cmp"
	"io"
	"path"
	"slices"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// list gives what the packs of a folder hold, once each, in no order.
func (p *packs) list(folder string) ([]storage.Info, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refresh(); err != nil {
		return nil, err
	}
	objects := make([]*packed, 0, len(p.objects))
	for _, o := range p.objects {
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b *packed) int { return cmp.Or(cmp.Compare(a.pack.name, b.pack.name), cmp.Compare(a.at, b.at)) })
	infos := make([]storage.Info, 0, len(objects))
	for len(objects) > 0 {
		pack := objects[0].pack
		n := slices.IndexFunc(objects, func(o *packed) bool { return o.pack != pack })
		if n < 0 {
			n = len(objects)
		}
		file, err := p.root.Open(pack.name + packEnding)
		switch {
		case missing(err): // removed meanwhile
		case err != nil:
			return nil, err
		default:
			infos, err = describe(file, folder, objects[:n], infos)
			file.Close()
			if err != nil {
				return nil, err
			}
		}
		objects = objects[n:]
	}
	return infos, nil
}

// describe adds objects of a pack, whose names are there.
func describe(pack io.ReaderAt, folder string, objects []*packed, infos []storage.Info) ([]storage.Info, error) {
	name := make([]byte, maxName)
	for _, o := range objects {
		if _, err := pack.ReadAt(name[:o.name], o.at+packHead); err != nil {
			return nil, err
		}
		infos = append(infos, storage.Info{Key: path.Join(folder, string(name[:o.name])), Size: int64(o.size), Modified: time.Unix(0, o.modified)})
	}
	return infos, nil
}
