package main

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
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/services/indexupdater"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

func newIndex(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use: "index", Short: "Keep and search an index of code, sealed for whoever holds its key",
		Long: `The index of a repository lies on the object store: vectors and words of its chunks, sealed with a key that stays with you, so that a
question finds the code that answers it. Neither the store nor the plane sees a name or a text of the code.`,
	}
	cmd.AddCommand(newIndexSync(g), newIndexSearch(g), newIndexStatus(g), newIndexForget(g), newIndexPairs(g))
	return cmd
}

// indexSettings say which index is meant.
type indexSettings struct {
	repo     string
	key      string
	embedder string
}

func (s *indexSettings) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.repo, "repo", "", "name of the repository (default: the folder's)")
	f.StringVar(&s.key, "key", "", "file of the index's key (default: "+filepath.Join(configFolder(), "NAME.key")+")")
	f.StringVar(&s.embedder, "embedder", builtinEmbedder, embedderUsage)
}

// builtinEmbedder is the embedder that needs nothing but this program.
const builtinEmbedder = "static"

const embedderUsage = "static (built in), model2vec:DIR, or an OpenAI-compatible endpoint as http://HOST/v1#MODEL"

// configFolder is where keys are kept.
func configFolder() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = "."
	}
	return filepath.Join(dir, "rondo", "index")
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
		if r < 128 && events.ValidToken(string(r)) {
			return r
		}
		return '-'
	}, filepath.Base(dir))
	return name[:min(len(name), 64)]
}

// folder is the working tree that a command is about, with its index. made says that its key is new.
func (s indexSettings) folder(store storage.Store, dir string, makeKey bool) (f *update.Folder, made string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, "", err
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, "", err
	} else if !info.IsDir() {
		return nil, "", fmt.Errorf("%s is no folder", dir)
	}
	if s.repo == "" {
		s.repo = nameOf(dir)
	}
	if !events.ValidToken(s.repo) {
		return nil, "", fmt.Errorf("--repo %.80q: use letters, digits, - and _, at most 64", s.repo)
	}
	s.key = s.keyFile(s.repo)
	key, isNew, err := seal.Key{}, false, error(nil)
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
	f, err = newFolder(store, s.repo, dir, key, s.embedder)
	return f, made, err
}

// existing does something with the index of a folder, which must have been made before.
func (s indexSettings) existing(ctx context.Context, g *global, dir string, do func(*update.Folder) error) error {
	store, err := openStore(ctx, g)
	if err != nil {
		return err
	}
	defer store.Close()
	f, _, err := s.folder(store, dir, false)
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
func newFolder(store storage.Store, repo, dir string, key seal.Key, embedder string) (*update.Folder, error) {
	e, err := embed.Open(embedder, filepath.Join(cacheFolder(), "embedders"))
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

// openStore opens the store of the plane that the flags name. It needs no plane that runs.
func openStore(ctx context.Context, g *global) (storage.Store, error) {
	url := g.store
	switch {
	case url != "":
	case g.nats != "":
		return nil, fmt.Errorf("--nats needs --store: where the index lies (a directory, or s3://bucket/prefix?endpoint=URL)")
	case planeRuns(g.dir):
		e, err := readEndpoint(g.dir)
		if err != nil {
			return nil, err
		}
		url = e.Store
	default:
		url = filepath.Join(g.dir, "objects")
	}
	store, err := open.Open(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open the store: %w", err)
	}
	return store, nil
}

// indexerSettings are those of the service that keeps indexes.
type indexerSettings struct {
	repos    []string
	keys     string
	embedder string
	every    time.Duration
}

func (s *indexerSettings) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.repos, "index-repo", nil, "keep the index of a folder: NAME=DIR; may be given again")
	f.StringVar(&s.keys, "index-keys", s.keys, "folder of the keys of indexes: NAME.key")
	f.StringVar(&s.embedder, "index-embedder", s.embedder, embedderUsage)
	f.DurationVar(&s.every, "index-every", s.every, "how often the folders are looked at")
}

// options are the folders with their keys, which are made where there are none.
func (s *indexerSettings) options(store storage.Store) (indexupdater.Options, error) {
	opts := indexupdater.Options{Folders: map[string]*update.Folder{}, Every: s.every}
	if s.every <= 0 {
		return opts, fmt.Errorf("--index-every %s: must be positive", s.every)
	}
	for _, text := range s.repos {
		name, dir, ok := strings.Cut(text, "=")
		if !ok || dir == "" || opts.Folders[name] != nil {
			return opts, fmt.Errorf("--index-repo %q: write NAME=DIR, each name once", text)
		}
		settings := indexSettings{repo: name, key: filepath.Join(s.keys, name+".key"), embedder: s.embedder}
		f, _, err := settings.folder(store, dir, true)
		if err != nil {
			return opts, fmt.Errorf("--index-repo %s: %w", text, err)
		}
		opts.Folders[name] = f
	}
	return opts, nil
}
