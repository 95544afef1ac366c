// Package indexing has the settings of code indexes, which the index commands and the service
// that keeps indexes share.
package indexing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/inference/embedder"
	"github.com/rondo-rl/rondo/services/indexupdater"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// BuiltinEmbedder is the embedder that needs nothing but this program.
const BuiltinEmbedder = "static"

const embedderUsage = "static (built in), or an OpenAI-compatible endpoint as http://HOST/v1#MODEL"

// ConfigFolder is where keys are kept.
func ConfigFolder() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = "."
	}
	return filepath.Join(dir, "rondo", "index")
}

// IndexerSettings are those of the service that keeps indexes.
type IndexerSettings struct {
	repos    []string
	Keys     string
	Embedder string
}

// AddFlags adds the flags of the index updater.
func (s *IndexerSettings) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.repos, "index-repo", nil, "keep the index of a folder: NAME=DIR; may be given again")
	f.StringVar(&s.Keys, "index-keys", s.Keys, "folder of the keys of indexes: NAME.key")
	f.StringVar(&s.Embedder, "index-embedder", s.Embedder, embedderUsage)
}

// Options are the folders with their keys, which are made where there are none.
func (s *IndexerSettings) Options(store storage.Store) (indexupdater.Options, error) {
	opts := indexupdater.Options{Folders: map[string]*update.Folder{}, Every: indexupdater.DefaultEvery}
	for _, text := range s.repos {
		name, dir, ok := strings.Cut(text, "=")
		if !ok || dir == "" || opts.Folders[name] != nil {
			return opts, fmt.Errorf("--index-repo %q: write NAME=DIR, each name once", text)
		}
		settings := IndexSettings{Repo: name, key: filepath.Join(s.Keys, name+".key"), embedder: s.Embedder}
		f, _, err := settings.Folder(store, dir, true)
		if err != nil {
			return opts, fmt.Errorf("--index-repo %s: %w", text, err)
		}
		opts.Folders[name] = f
	}
	return opts, nil
}

// IndexSettings say which index is meant.
type IndexSettings struct {
	Repo     string
	key      string
	embedder string
}

// AddFlags adds the flags that name an index, its key and its embedder.
func (s *IndexSettings) AddFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.Repo, "repo", "", "name of the repository (default: the folder's)")
	f.StringVar(&s.key, "key", "", "file of the index's key (default: "+filepath.Join(ConfigFolder(), "NAME.key")+")")
	f.StringVar(&s.embedder, "embedder", BuiltinEmbedder, embedderUsage)
}

// cacheFolder is where may be lost what is kept of indexes on this machine.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "rondo", "index")
}

// cacheBytes is what the indexes that were searched here may take of the disk.
const cacheBytes = 2 << 30

// nameOf makes a repository's name of a folder's.
func nameOf(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && runfile.ValidToken(string(r)) {
			return r
		}
		return '-'
	}, filepath.Base(dir))
	return name[:min(len(name), 64)]
}

// Folder is the working tree that a command is about, with its index. made
// says that its key is new.
func (s IndexSettings) Folder(store storage.Store, dir string,
	makeKey bool) (f *update.Folder, made string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, "", err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, "", err
	} else if !info.IsDir() {
		return nil, "", fmt.Errorf("%s is no folder", dir)
	}
	if s.Repo == "" {
		s.Repo = nameOf(dir)
	}
	if !runfile.ValidToken(s.Repo) {
		return nil, "", fmt.Errorf("--repo %.80q: use letters, digits, - and _, at most 64", s.Repo)
	}
	s.key = s.KeyFile(s.Repo)
	var key seal.Key
	var isNew bool
	if makeKey {
		key, isNew, err = seal.EnsureKey(s.key)
	} else {
		key, err = seal.ReadKey(s.key)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w %s", errNoKey, s.key)
		}
	}
	if err != nil {
		return nil, "", err
	}
	if isNew {
		made = s.key
	}
	f, err = newFolder(store, s.Repo, dir, key, s.embedder)
	return f, made, err
}

// Existing does something with the index of a folder, which must have been made before.
func (s IndexSettings) Existing(ctx context.Context, g *app.Global, dir string, do func(*update.Folder) error) error {
	store, err := OpenStore(ctx, g)
	if err != nil {
		return err
	}
	defer store.Close()
	f, _, err := s.Folder(store, dir, false)
	if errors.Is(err, errNoKey) {
		return fmt.Errorf("%w: `rondo index sync %s` makes the index", err, dir)
	}
	if err != nil {
		return err
	}
	return do(f)
}

// errNoKey: nobody has made the index's key.
var errNoKey = errors.New("there is no key")

// newFolder is a working tree with its index.
func newFolder(store storage.Store, repo, dir string, key seal.Key, spec string) (*update.Folder, error) {
	e, err := embedder.Open(spec, filepath.Join(cacheFolder(), "embedders"))
	if err != nil {
		return nil, fmt.Errorf("--embedder: %w", err)
	}
	cache, err := segment.NewCache(filepath.Join(cacheFolder(), "segments"), cacheBytes, segment.Memory)
	if err != nil {
		return nil, err
	}
	keys := seal.New(key)
	place := sha256.Sum256([]byte(dir))
	return &update.Folder{
		Index: update.Index{Store: store, Keys: keys, Repo: repo, Embedder: e, Cache: cache},
		Dir:   dir, StateFile: filepath.Join(cacheFolder(), "trees", hex.EncodeToString(place[:16])),
	}, nil
}

// KeyFile is where the key of a repository is.
func (s IndexSettings) KeyFile(repo string) string {
	if s.key != "" {
		return s.key
	}
	return filepath.Join(ConfigFolder(), repo+".key")
}

// OpenStore opens the store of the plane that the flags name. It needs no plane that runs.
func OpenStore(ctx context.Context, g *app.Global) (storage.Store, error) {
	url := g.Store
	switch {
	case url != "":
	case g.NATS != "":
		return nil, fmt.Errorf("--nats needs --store, the object store of the index (a directory, or s3://bucket/prefix?endpoint=URL)")
	case plane.PlaneRuns(g.Dir):
		e, err := plane.ReadEndpoint(g.Dir)
		if err != nil {
			return nil, err
		}
		url = e.Store
	default:
		url = filepath.Join(g.Dir, "objects")
	}
	store, err := open.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return store, nil
}
