package toolrunner

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/merkle"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
)

const (
	// snapshotsHeld is how many snapshots' indexes are kept open.
	snapshotsHeld = 64
	// foundParts is how many parts of files answer one question.
	foundParts = 8
)

// searcher answers codebase_search. A snapshot has one index, which all rollouts of it share,
// whichever runner makes it first; what a rollout has changed is searched beside it.
type searcher struct {
	store    storage.Store
	embedder embed.Embedder
	cache    *segment.Cache
	held     *lru.Cache[string, *indexed]
	// storeless searchers find indexes, but make none that others see.
	storeless bool
}

// indexed is the index of a snapshot, made or found when it is first asked. The snapshot itself may
// be large, and is not kept.
type indexed struct {
	mu       sync.Mutex
	index    update.Index
	base     *segment.Base // nil until then
	snapshot storage.Ref
}

func newSearcher(store storage.Store) (*searcher, error) {
	cache, err := segment.NewCache("", 0, segment.Memory)
	if err != nil {
		return nil, err
	}
	held, err := lru.New[string, *indexed](snapshotsHeld)
	return &searcher{store: store, embedder: embed.Static(), cache: cache, held: held}, err
}

// offered is the tool for a task's rollouts, nil where the run does not want it.
func (s *searcher) offered(cfg runfile.RunConfig, task runfile.TaskSpec) tools.Search {
	if !cfg.Has(runfile.FeatureCodebaseSearch) {
		return nil
	}
	return s.search(task)
}

func (s *searcher) search(task runfile.TaskSpec) tools.Search {
	return func(ctx context.Context, sb *sandbox.Sandbox, query, directory string) (tools.Findings, error) {
		began := time.Now()
		x, err := s.open(ctx, task.Snapshot)
		if err != nil {
			return tools.Findings{}, fmt.Errorf("index of the snapshot of task %s: %w", task.Name, err)
		}
		waited := time.Since(began)
		now, err := x.now(ctx, sb)
		if err != nil {
			return tools.Findings{}, fmt.Errorf("index of the changes of task %s: %w", task.Name, err)
		}
		hits, err := x.index.Ask(ctx, now, query, directory, foundParts)
		if err != nil {
			return tools.Findings{}, err
		}
		found := tools.Findings{Waited: waited}
		for _, h := range hits {
			found.Parts = append(found.Parts, tools.Part{Path: h.Path, FirstLine: h.FirstLine,
				LastLine: h.LastLine, Symbols: h.Symbol})
		}
		return found, nil
	}
}

// root is that of a snapshot's index.
func (s *searcher) root(ctx context.Context, task runfile.TaskSpec) (string, error) {
	x, err := s.open(ctx, task.Snapshot)
	if err != nil {
		return "", err
	}
	return x.base.Root(), nil
}

// open finds the index of a snapshot, or makes it.
func (s *searcher) open(ctx context.Context, snapshot storage.Ref) (*indexed, error) {
	fresh := &indexed{snapshot: snapshot, index: update.Index{
		Store: s.store, Keys: seal.New(seal.ForSnapshot(snapshot.SHA256)), Repo: "snapshot",
		Embedder: s.embedder, Cache: s.cache,
	}}
	x, found, _ := s.held.PeekOrAdd(snapshot.SHA256, fresh)
	if !found {
		x = fresh
	}
	s.held.Get(snapshot.SHA256) // it was used now
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.base != nil {
		return x, nil
	}
	base, err := x.index.Load(ctx)
	if err != nil {
		return nil, err
	}
	if base.Root() == "" && !s.storeless {
		tree, err := x.files(ctx, nil)
		if err != nil {
			return nil, err
		}
		if _, err := x.index.Snapshot(ctx, tree); err != nil {
			return nil, err
		}
		if base, err = x.index.Load(ctx); err != nil {
			return nil, err
		}
	}
	x.base = base
	return x, nil
}

// now is the index with what the sandbox has changed.
func (x *indexed) now(ctx context.Context, sb *sandbox.Sandbox) (*segment.Base, error) {
	changes, err := sb.Changes(ctx)
	if err != nil || changes == nil && x.base.Root() != "" {
		return x.base, err
	}
	tree, err := x.files(ctx, changes)
	if err != nil {
		return nil, err
	}
	return x.index.Overlay(ctx, x.base, tree)
}

// files are those of the snapshot with changes over it.
func (x *indexed) files(ctx context.Context, changes []byte) (fs.FS, error) {
	return sandbox.Tree(merkle.DefaultLimits().FileBytes,
		changeOf(ctx, x.index.Store, nil, &x.snapshot), sandbox.Bytes(changes))
}
