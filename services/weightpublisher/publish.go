package weightpublisher

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// A submission is a few bytes of text that may name terabytes. Names, number and sizes are checked
// first, and then whether the store holds objects of these sizes; only then files are read, one
// after the other, in pieces.

// publish makes the version visible in the store.
func (s *Service) publish(ctx context.Context, policy string, submitted events.WeightsSubmitted,
	last *events.WeightsPublished) (events.WeightsPublished, error) {
	fact := events.WeightsPublished{Policy: policy, Version: submitted.Version, Run: submitted.Run,
		ThroughStep: submitted.ThroughStep}
	if err := checkSubmission(policy, submitted); err != nil {
		return fact, &rejection{err}
	}
	if err := checkGap(submitted, last); err != nil {
		return fact, &rejection{err}
	}
	current, _, err := weights.Current(ctx, s.store, policy)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fact, err
	}
	if err == nil && submitted.Version < current {
		return fact, &rejection{fmt.Errorf("version %d: version %d is published already; versions only grow",
			submitted.Version, current)}
	}
	files := make([]weights.File, len(submitted.Files))
	for i, f := range submitted.Files {
		files[i] = weights.File{Name: f.Name, Ref: f.Blob}
	}
	made, err := s.rebuild(ctx, policy, submitted, files)
	if err != nil {
		return fact, err
	}
	if err := s.checkSizes(ctx, submitted.Files); err != nil {
		return fact, err
	}
	published, err := weights.PublishFrom(ctx, s.store, policy, submitted.Version, files, made, submitted.Allow...)
	var wrong *weights.FileError
	switch {
	case errors.Is(err, weights.ErrStructure), errors.Is(err, weights.ErrUnfit):
		s.warn("weights refused", "policy", policy, "version", submitted.Version, "error", err)
		return fact, &rejection{reasonFor(policy, submitted, err)}
	case errors.As(err, &wrong):
		return fact, s.rejectLost(events.WeightsFile{Name: wrong.File.Name, Blob: wrong.File.Ref}, err)
	case errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrTooLarge):
		return fact, &rejection{err}
	case err != nil:
		return fact, err
	}
	if published.NoDelta != nil {
		s.warn("weights published without a delta: replicas read them whole", "policy", policy,
			"version", submitted.Version, "error", published.NoDelta)
	}
	if published.Delta != nil {
		s.meter.countDelta(published.Delta.Size)
	}
	fact.Manifest = published.Ref
	return fact, nil
}

// reasonFor is what a trainer is told of its files. What stands in a blob may be another one's, so
// of blobs no name is told.
func reasonFor(policy string, submitted events.WeightsSubmitted, err error) error {
	for _, f := range submitted.Files {
		if f.Blob.Key == weights.FileKey(policy, f.Blob.SHA256) {
			continue
		}
		cause := fmt.Errorf("a file of tensors is %w", weights.ErrStructure)
		if errors.Is(err, weights.ErrUnfit) {
			cause = weights.ErrUnfit
		}
		return fmt.Errorf("version %d: %w; the operator finds which and why in the weight publisher's log",
			submitted.Version, cause)
	}
	return err
}

// checkGap checks that a version leaves out no more numbers than steps were trained since
// the last one: staleness is counted in versions, so that a number too high makes every
// rollout under way too old.
func checkGap(submitted events.WeightsSubmitted, last *events.WeightsPublished) error {
	if last == nil || slices.Contains(submitted.Allow, weights.AllowGap) {
		return nil
	}
	steps := submitted.ThroughStep
	if last.Run == submitted.Run {
		steps -= last.ThroughStep
	}
	if next := last.Version + max(1, steps); submitted.Version > next {
		return fmt.Errorf("version %d: the last one is %d, and %d steps were trained since: want %d at most, or allow %q",
			submitted.Version, last.Version, max(0, steps), next, weights.AllowGap)
	}
	return nil
}

// rebuild makes the files that the store lacks of the submission's delta; nil when it has none.
func (s *Service) rebuild(ctx context.Context, policy string, submitted events.WeightsSubmitted,
	files []weights.File) (*weights.MadeDelta, error) {
	if submitted.Delta == nil {
		return nil, nil
	}
	made := weights.MadeDelta{Base: submitted.Delta.Base, Ref: submitted.Delta.Blob}
	err := weights.Rebuild(ctx, s.store, policy, files, made)
	if errors.Is(err, weights.ErrDelta) {
		s.warn("weights refused", "policy", policy, "version", submitted.Version, "error", err)
		return nil, &rejection{fmt.Errorf("version %d, base %d: %w; submit the files themselves", submitted.Version,
			made.Base, weights.ErrDelta)}
	}
	return &made, err
}

// repeatable is the size in bytes up to which two files of a version may have the same
// content, as small settings do.
const repeatable = 1 << 20

// checkSubmission checks what a submission says, without asking the store.
func checkSubmission(policy string, submitted events.WeightsSubmitted) error {
	names, total, seen := make([]string, len(submitted.Files)), int64(0), map[string]string{}
	for i, f := range submitted.Files {
		names[i] = f.Name
	}
	if err := weights.CheckNames(policy, submitted.Version, names); err != nil {
		return err
	}
	if d := submitted.Delta; d != nil {
		if err := topology.CheckWeights(d.Blob, policy); err != nil {
			return fmt.Errorf("delta: %w", err)
		}
		if d.Base < 0 || d.Base >= submitted.Version || d.Blob.Size > weights.MaxVersion {
			return fmt.Errorf("delta: %d bytes from version %d to version %d: want an older version, and at most %d bytes",
				d.Blob.Size, d.Base, submitted.Version, int64(weights.MaxVersion))
		}
	}
	for _, f := range submitted.Files {
		if err := topology.CheckWeights(f.Blob, policy); err != nil {
			return fmt.Errorf("file %s: %w", f.Name, err)
		}
		if total += f.Blob.Size; total > weights.MaxVersion {
			return fmt.Errorf("the files have more than %d bytes together", int64(weights.MaxVersion))
		}
		if first, again := seen[f.Blob.SHA256]; again && f.Blob.Size > repeatable {
			return fmt.Errorf("file %s: the same content as file %s: a content of more than %d bytes stands in a version once",
				f.Name, first, repeatable)
		}
		seen[f.Blob.SHA256] = f.Name
	}
	return nil
}

// checkSizes looks whether the store holds an object of the stated size for each file.
func (s *Service) checkSizes(ctx context.Context, files []events.WeightsFile) error {
	for _, f := range files {
		info, err := s.store.Stat(ctx, f.Blob.Key)
		if err == nil && info.Size != f.Blob.Size {
			err = fmt.Errorf("%w: it has %d bytes", storage.ErrCorrupt, info.Size)
		}
		if err := s.rejectLost(f, err); err != nil {
			return err
		}
	}
	return nil
}

// rejectLost rejects a file that the store does not hold, in the same words whatever is there.
func (s *Service) rejectLost(f events.WeightsFile, err error) error {
	if !storage.IsUnusable(err) {
		return err
	}
	s.warn("weights refused", "file", f.Name, "key", f.Blob.Key, "error", err)
	return &rejection{fmt.Errorf("file %s: the store has no object %.200q of %d bytes with that sha256", f.Name,
		f.Blob.Key, f.Blob.Size)}
}

func (s *Service) warn(event string, keys ...any) {
	if s.logger != nil {
		s.logger.Warn(event, keys...)
	}
}
