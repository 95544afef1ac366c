package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// LeastVersions is how many of a policy's newest versions always stay: the current one, and the
// one that it was made from.
const LeastVersions = 2

// WeightRetention says which versions of a policy are collected. The current version, newer ones,
// and those that somebody may still need never are.
type WeightRetention struct {
	// ReplacedBefore collects versions that the next one replaced before it.
	ReplacedBefore time.Time
	// Keep is how many of the newest versions stay, whatever their age; at least LeastVersions.
	Keep int
	// Cutoff is the moment before which a file must have been written to be deleted.
	Cutoff time.Time
}

// OldVersion is a version that is older than what retention keeps.
type OldVersion struct {
	Version   int64     `json:"version"`
	Bytes     int64     `json:"bytes"` // of its files; other versions may share them
	Published time.Time `json:"published"`
	Replaced  time.Time `json:"replaced"`
	// Kept says who may still need it.
	Kept      string `json:"kept,omitempty"`
	Collected bool   `json:"collected"`
}

// WeightsReport is what retention finds of a policy's weights.
type WeightsReport struct {
	Policy   string       `json:"policy"`
	Versions []OldVersion `json:"versions"`
	// Objects are those that no version needs which stays, and that are old enough: files, and
	// deltas of collected versions.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Young   int   `json:"young"` // needed by none, but too young
	Deleted int   `json:"deleted"`
	Freed   int64 `json:"deleted_bytes"`
}

// weightsCollector collects versions of one policy.
type weightsCollector struct {
	store  storage.Store
	policy string
	keep   WeightRetention
	needs  *weightNeeds
	gone   map[int64]bool              // versions that are collected, or would be
	known  map[int64]*weights.Manifest // of the others
	deltas map[int64]string            // and the keys of their deltas
	needed map[string]bool             // files that those name
	report WeightsReport
}

// CollectWeights finds the versions of a policy that retention does not keep, and the files that no
// other version needs; with remove it deletes these.
//
// A version is collected from the moment that weights.Collect has said so; then its files are
// deleted. One that is killed in between leaves files that the next one finds. Files that no
// version names are deleted, too, unless they are young or a submission that is not answered names
// them. Both are looked at again before every few deletions, so publishers may be at work.
func CollectWeights(ctx context.Context, log eventlog.Archive, policy string, keep WeightRetention,
	remove bool) (WeightsReport, error) {
	c := &weightsCollector{
		store: log.Store(), policy: policy, keep: keep, needs: newWeightNeeds(log, policy), gone: map[int64]bool{},
		known: map[int64]*weights.Manifest{}, deltas: map[int64]string{},
		report: WeightsReport{Policy: policy, Versions: []OldVersion{}},
	}
	err := c.versions(ctx, remove)
	if err == nil {
		err = c.files(ctx, remove)
	}
	if err != nil {
		return c.report, fmt.Errorf("collect weights of policy %s: %w", policy, err)
	}
	return c.report, nil
}

// versions chooses the versions that are given up.
func (c *weightsCollector) versions(ctx context.Context, remove bool) error {
	current, _, err := weights.Current(ctx, c.store, c.policy)
	if err != nil {
		return err
	}
	if err := c.needs.read(ctx); err != nil {
		return err
	}
	stored, err := weights.Versions(ctx, c.store, c.policy)
	if err != nil {
		return err
	}
	// The newest versions up to the current one stay, and none that is newer than it is
	// touched: it is being published.
	upTo := slices.IndexFunc(stored, func(s weights.Stored) bool { return s.Version >= current })
	for i := range max(0, upTo+1-max(c.keep.Keep, LeastVersions)) {
		s, replaced := stored[i], stored[i+1].Manifest.Modified
		if !s.Collected.IsZero() || !replaced.Before(c.keep.ReplacedBefore) {
			continue
		}
		m, _, err := weights.ReadManifest(ctx, c.store, c.policy, s.Version)
		if err != nil {
			return err
		}
		old := OldVersion{Version: s.Version, Published: s.Manifest.Modified, Replaced: replaced,
			Kept: c.needs.needs(s.Version)}
		for _, file := range m.Files {
			old.Bytes += file.Size
		}
		if c.gone[s.Version] = old.Kept == ""; c.gone[s.Version] && remove {
			reason := fmt.Sprintf("replaced %s, before %s", replaced.UTC().Format(time.DateTime),
				c.keep.ReplacedBefore.UTC().Format(time.DateTime))
			if err := weights.Collect(ctx, c.store, c.policy, s.Version,
				weights.Collected{At: time.Now().UTC(), Reason: reason}); err != nil {
				return err
			}
			old.Collected = true
		}
		c.report.Versions = append(c.report.Versions, old)
	}
	return nil
}

// look looks again at which files are needed: by versions that are whole, and by submissions.
func (c *weightsCollector) look(ctx context.Context) error {
	if err := c.needs.read(ctx); err != nil { // before the versions: what was a submission is a version then
		return err
	}
	stored, err := weights.Versions(ctx, c.store, c.policy)
	if err != nil {
		return err
	}
	c.needed = map[string]bool{}
	for _, s := range stored {
		if !s.Collected.IsZero() || c.gone[s.Version] {
			c.gone[s.Version] = true
			continue
		}
		if c.known[s.Version] == nil {
			if c.known[s.Version], _, err = weights.ReadManifest(ctx, c.store, c.policy, s.Version); err != nil {
				return err
			}
		}
		for _, file := range c.known[s.Version].Files {
			c.needed[file.Key] = true
		}
		if err := c.needDelta(ctx, s.Version); err != nil {
			return err
		}
	}
	return nil
}

// needDelta notes a version's delta, which lies among the files where a trainer made it. It is
// written once, and may be written still.
func (c *weightsCollector) needDelta(ctx context.Context, version int64) error {
	if c.deltas[version] == "" {
		d, err := weights.FetchDelta(ctx, c.store, c.policy, version)
		if storage.IsUnusable(err) {
			return nil
		}
		if err != nil {
			return err
		}
		c.deltas[version] = d.Key
	}
	c.needed[c.deltas[version]] = true
	return nil
}

// mayGo reports whether nobody needs an object.
func (c *weightsCollector) mayGo(key string) bool { return !c.needed[key] && !c.needs.files[key] }

// files finds, and with remove deletes, the objects that nobody needs.
func (c *weightsCollector) files(ctx context.Context, remove bool) error {
	if err := c.look(ctx); err != nil {
		return err
	}
	var all []storage.Info
	add := func(prefix string, stay ...string) error {
		for info, err := range c.store.List(ctx, prefix) {
			switch {
			case err != nil:
				return err
			case !c.mayGo(info.Key) || slices.Contains(stay, info.Key):
			case info.Modified.IsZero() || !info.Modified.Before(c.keep.Cutoff):
				c.report.Young++
			default:
				c.report.Objects, c.report.Bytes = c.report.Objects+1, c.report.Bytes+info.Size
				all = append(all, info)
			}
		}
		return nil
	}
	err := add(strings.TrimSuffix(weights.FileKey(c.policy, ""), "/") + "/")
	for version := range c.gone {
		if !c.gone[version] {
			continue // somebody needs it
		}
		prefix, stay := weights.VersionObjects(c.policy, version)
		err = errors.Join(err, add(prefix, stay...))
	}
	if err != nil || !remove {
		return err
	}
	return c.delete(ctx, all)
}

// delete deletes objects that are still old, and needed by nobody.
func (c *weightsCollector) delete(ctx context.Context, all []storage.Info) error {
	for batch := range slices.Chunk(all, sweptAtOnce) {
		if err := c.look(ctx); err != nil {
			return err
		}
		for _, object := range batch {
			info, err := c.store.Stat(ctx, object.Key)
			if errors.Is(err, storage.ErrNotFound) ||
				err == nil && (!info.Modified.Before(c.keep.Cutoff) || !c.mayGo(object.Key)) {
				continue
			}
			if err != nil {
				return err
			}
			if err := c.store.Delete(ctx, object.Key); err != nil {
				return err
			}
			c.report.Deleted, c.report.Freed = c.report.Deleted+1, c.report.Freed+object.Size
		}
	}
	return nil
}

// CollectAllWeights is CollectWeights of every policy.
func CollectAllWeights(ctx context.Context, log eventlog.Archive, keep WeightRetention,
	remove bool) (all []WeightsReport, err error) {
	policies, err := weights.Policies(ctx, log.Store())
	if err != nil {
		return nil, err
	}
	for _, policy := range policies {
		report, err := CollectWeights(ctx, log, policy, keep, remove)
		if err != nil {
			return all, err
		}
		all = append(all, report)
	}
	return all, nil
}
