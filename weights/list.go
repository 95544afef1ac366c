package weights

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// Policies are the names of the policies that have versions in a store.
func Policies(ctx context.Context, s storage.Store) (names []string, err error) {
	for info, err := range s.List(ctx, "weights/") {
		if err != nil {
			return nil, fmt.Errorf("list policies: %w", err)
		}
		name, file, _ := strings.Cut(strings.TrimPrefix(info.Key, "weights/"), "/")
		if file == "current" && policyName.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

var versionKey = regexp.MustCompile(`^v(\d{6,18})/(` + regexp.QuoteMeta(manifestName) + `|` +
	regexp.QuoteMeta(collectedName) + `)$`)

// Stored is a version in a store.
type Stored struct {
	Version int64
	// Manifest describes the object that lists its files.
	Manifest storage.Info
	// Collected is when its files were given up; zero for a version that is whole.
	Collected time.Time
}

// Versions are the versions of a policy in a store, the oldest first.
func Versions(ctx context.Context, s storage.Store, policy string) (found []Stored, err error) {
	if err := checkNames(policy, 0); err != nil {
		return nil, err
	}
	prefix, collected := "weights/"+policy+"/", map[int64]time.Time{}
	for info, err := range s.List(ctx, prefix) {
		if err != nil {
			return nil, fmt.Errorf("list versions of policy %s: %w", policy, err)
		}
		match := versionKey.FindStringSubmatch(strings.TrimPrefix(info.Key, prefix))
		if match == nil {
			continue
		}
		version, err := strconv.ParseInt(match[1], 10, 64)
		switch {
		case err != nil:
		case info.Key == ManifestKey(policy, version):
			found = append(found, Stored{Version: version, Manifest: info})
		case info.Key == CollectedKey(policy, version):
			collected[version] = info.Modified
		}
	}
	for i := range found {
		found[i].Collected = collected[found[i].Version]
	}
	slices.SortFunc(found, func(a, b Stored) int { return int(a.Version - b.Version) })
	return found, nil
}
