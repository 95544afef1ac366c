package toolrunner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/parts"
	"github.com/rondo-rl/rondo/storage/projection"
)

const (
	// cacheBytes bounds the answers that one runner keeps; the oldest make room.
	cacheBytes = 256 << 20
	// maxAnswer bounds one of them as it is written: every byte of its text may take six.
	maxAnswer = 6*tools.MaxContent + 4<<10
	// worthSharing is how long a call took that other runners are spared.
	worthSharing = 20 * time.Millisecond
	// treesRemembered is of how many workspaces it is known whether links lead out of them.
	treesRemembered = 4096
)

// answer is what a call answered, as it is kept.
type answer struct {
	Content      string  `json:"content"`
	ExitCode     *int    `json:"exit_code,omitempty"`
	DroppedBytes int64   `json:"dropped_bytes,omitempty"`
	DurationMS   float64 `json:"duration_ms"`
}

// queued is a place in the order in which answers came.
type queued struct {
	Place uint64 `json:"place"`
	Key   string `json:"key"`
	Bytes int64  `json:"bytes"`
}

// cache keeps what read-only calls and deterministic commands answered, by all that the answer
// follows from. Entries never change. It is disposable: what cannot be read or written is run.
type cache struct {
	store   storage.Store
	logger  *slog.Logger
	dir     string
	limit   int64
	parts   *parts.Cache             // of workspaces' changes; nil for none
	linked  *lru.Cache[string, bool] // by digest of a workspace's change: it has links
	opening sync.Once

	mu    sync.Mutex     // of what follows
	db    *projection.DB // nil where it cannot be opened
	first uint64         // the oldest place
	next  uint64
	held  int64
}

func newCache(store storage.Store, dir string, logger *slog.Logger) (*cache, error) {
	linked, err := lru.New[string, bool](treesRemembered)
	return &cache{store: store, logger: logger, dir: filepath.Join(dir, "tools"),
		limit: cacheBytes, linked: linked}, err
}

// open opens what this runner has kept, when it is first asked.
func (c *cache) open() {
	c.opening.Do(func() {
		db, err := projection.Open(c.dir, projection.Identity{Stream: "tools", Fold: "answers/1"})
		if err != nil {
			c.logger.Warn("tool cache unavailable", "error", err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for q, err := range projection.Scan[queued](db, "q/") {
			if err != nil {
				c.logger.Warn("tool cache unavailable", "error", err)
				db.Close()
				return
			}
			if c.held == 0 {
				c.first = q.Place
			}
			c.next = q.Place + 1
			c.held += q.Bytes
		}
		c.db = db
	})
}

func (c *cache) close() {
	c.opening.Do(func() {}) // it is not opened any more
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != nil {
		c.db.Close()
		c.db = nil
	}
}

// shared reports whether a tool's answers take so long that asking the store first is worth it.
func shared(tool string) bool {
	return tool == tools.SearchTool || tool == "read_lints" || tools.RunsCommands(tool)
}

// get finds an answer here, or in the store where another runner of the run may have left it.
func (c *cache) get(ctx context.Context, run, tool, key string) (answer, bool) {
	if a, ok := c.local(key); ok {
		return a, true
	}
	if !shared(tool) {
		return answer{}, false
	}
	info, err := c.store.Stat(ctx, sharedKey(run, key))
	if err != nil || info.Size > maxAnswer {
		return answer{}, false
	}
	data, err := c.store.GetRange(ctx, sharedKey(run, key), 0, info.Size)
	var a answer
	if err != nil || json.Unmarshal(data, &a) != nil || len(a.Content) > tools.MaxContent+4<<10 {
		return answer{}, false
	}
	c.keep(key, a)
	return a, true
}

func sharedKey(run, key string) string { return "runs/" + run + "/tools/" + key }

func (c *cache) local(key string) (answer, bool) {
	c.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == nil {
		return answer{}, false
	}
	a, ok, err := projection.Get[answer](c.db, "a/"+key)
	return a, ok && err == nil
}

// put keeps an answer, here and, where it took long, for the other runners.
func (c *cache) put(ctx context.Context, run, tool, key string, a answer) {
	c.keep(key, a)
	if !shared(tool) || a.DurationMS < float64(worthSharing)/float64(time.Millisecond) {
		return
	}
	data, err := json.Marshal(a)
	if err == nil {
		err = c.store.Put(ctx, sharedKey(run, key), data)
	}
	if err != nil && ctx.Err() == nil {
		c.logger.WarnContext(ctx, "tool answer not cached", "tool", tool, "error", err)
	}
}

// keep writes an answer, and takes the oldest out while there are too many.
func (c *cache) keep(key string, a answer) {
	c.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db == nil {
		return
	}
	if _, there, err := projection.Get[answer](c.db, "a/"+key); there || err != nil {
		return
	}
	if err := c.write(key, a); err != nil {
		c.logger.Warn("tool cache disabled", "error", err)
		c.db.Close()
		c.db = nil
	}
}

func (c *cache) write(key string, a answer) error {
	tx := c.db.Begin()
	defer tx.Discard()
	q := queued{Place: c.next, Key: key, Bytes: int64(len(a.Content) + 2*len(key))}
	if err := projection.Put(tx, "a/"+key, a); err != nil {
		return err
	}
	if err := projection.Put(tx, queueKey(q.Place), q); err != nil {
		return err
	}
	first, held := c.first, c.held+q.Bytes
	for ; held > c.limit && first < q.Place; first++ {
		old, ok, err := projection.Get[queued](c.db, queueKey(first))
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		for _, gone := range []string{"a/" + old.Key, queueKey(first)} {
			if err := tx.Delete(gone); err != nil {
				return err
			}
		}
		held -= old.Bytes
	}
	if err := c.db.Commit(tx, q.Place+1); err != nil {
		return err
	}
	c.first, c.held, c.next = first, held, q.Place+1
	return nil
}

func queueKey(n uint64) string { return fmt.Sprintf("q/%016x", n) }

// digest is the name of all that an answer follows from.
func digest(of any) (string, error) {
	encoded, err := json.Marshal(of)
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), err
}
