package weights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// ErrCollected means that a version was published, and that retention has given up its files since.
// It is a storage.ErrNotFound, too.
var ErrCollected = fmt.Errorf("it was collected, and its files are deleted: %w", storage.ErrNotFound)

// collectedName is the object beside a version's manifest that says that retention has
// given its files up. It is written before the first of them is deleted, and never
// removed; the manifest stays.
const collectedName = "collected.json"

// Collected says when and why a version's files were given up.
type Collected struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// CollectedKey is the key of the object that says that a version is collected:
// weights/<policy>/v000012/collected.json.
func CollectedKey(policy string, version int64) string {
	return folder(policy, version) + "/" + collectedName
}

// Collect states that a version's files are given up, so that nobody begins to read them. Where
// that was stated before, it stays as it was.
func Collect(ctx context.Context, s storage.Store, policy string, version int64, c Collected) error {
	if err := checkNames(policy, version); err != nil {
		return err
	}
	data, err := json.Marshal(c)
	if err == nil {
		err = s.PutIfAbsent(ctx, CollectedKey(policy, version), append(data, '\n'))
	}
	if err != nil && !errors.Is(err, storage.ErrExists) {
		return fmt.Errorf("collect policy %s, version %d: %w", policy, version, err)
	}
	return nil
}

// CheckWhole is ErrCollected where a version's files are given up. A store that does not say so is
// no reason to stop: who may read a policy's versions may not list them, and S3 refuses such keys
// what is not there. A file that is missing is found when it is read.
func CheckWhole(ctx context.Context, s storage.Store, policy string, version int64) error {
	data, _, err := s.Load(ctx, CollectedKey(policy, version))
	if err != nil {
		return ctx.Err()
	}
	var c Collected
	if json.Unmarshal(data, &c) != nil {
		return ErrCollected
	}
	return fmt.Errorf("%w (%s, %s)", ErrCollected, c.At.UTC().Format(time.DateTime), c.Reason)
}

// VersionObjects is the prefix of the objects of one version alone, and those of them that
// stay when it is collected.
func VersionObjects(policy string, version int64) (prefix string, stay []string) {
	return folder(policy, version) + "/", []string{ManifestKey(policy, version), CollectedKey(policy, version)}
}
