package fetch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/rondo-rl/rondo/weights/changes"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// Changes are the elements that differ between two versions of a folder, in files beside them.
type Changes struct {
	// Base is the digest of the older version's manifest.
	Base string
	// Files have the SHA-256 of each file by its path.
	Files map[string]string
}

var changesName = regexp.MustCompile(`^\.v(\d{6,18})\.from\d{6,18}(\.new)?$`)

// Changes writes the changes from one version in the folder to another one. It is fs.ErrNotExist
// where the folder lacks one of them, and changes.ErrWhole where the version is to be loaded whole.
// They stay as long as the version. It may be called while Fetch is at work.
//
// Files of versions are believed: they were verified when they were fetched. Where one has changed
// on the disk since, elements are written that need not be.
func (f *Folder) Changes(ctx context.Context, from, to int64) (*Changes, error) {
	c, err := f.changes(ctx, from, to)
	if err != nil {
		return nil, fmt.Errorf("changes from version %d to %d: %w", from, to, err)
	}
	return c, nil
}

func (f *Folder) changes(ctx context.Context, from, to int64) (*Changes, error) {
	f.changing.Lock()
	defer f.changing.Unlock()
	base, err := f.Have(from)
	if err != nil {
		return nil, err
	}
	v, err := f.Have(to)
	if err != nil {
		return nil, err
	}
	key := [2]string{base.Digest, v.Digest}
	if made := f.made[key]; made != nil {
		return made, nil
	}
	dir := filepath.Join(f.dir, fmt.Sprintf(".v%06d.from%06d", to, from))
	digests, err := write(ctx, base, v, dir)
	if err != nil {
		return nil, err
	}
	made := &Changes{Base: base.Digest, Files: map[string]string{}}
	for name, digest := range digests {
		made.Files[filepath.Join(dir, name)] = digest
	}
	maps.DeleteFunc(f.made, func(key [2]string, _ *Changes) bool { return key[1] != v.Digest })
	f.made[key] = made // other replicas ask for the same
	return made, nil
}

func write(ctx context.Context, base, v *Version, dir string) (map[string]string, error) {
	part := dir + ".new"
	for _, old := range []string{dir, part} { // of a process before this one
		if err := os.RemoveAll(old); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(part)
	before, err := safetensors.Open(base.Dir)
	if err != nil {
		return nil, err
	}
	defer before.Close()
	after, err := safetensors.Open(v.Dir)
	if err != nil {
		return nil, err
	}
	defer after.Close()
	digests, err := changes.Write(ctx, before, after, part)
	if err != nil {
		return nil, err
	}
	return digests, os.Rename(part, dir)
}

// removeChanges deletes the changes to versions that are gone.
func (f *Folder) removeChanges() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		match := changesName.FindStringSubmatch(e.Name())
		if match == nil {
			continue
		}
		n, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			return err
		}
		if _, err := os.Stat(f.path(n)); err == nil {
			continue
		} else if !os.IsNotExist(err) {
			return err
		}
		if err := os.RemoveAll(filepath.Join(f.dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
