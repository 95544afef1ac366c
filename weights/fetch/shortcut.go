package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/delta"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

// maxSteps bounds how many deltas, one after the other, lead to a version.
const maxSteps = 16

// Places in a part: deltas and what comes of them, and a note that they are of no use.
func (f *Folder) deltasPath(version int64) string {
	return filepath.Join(f.partPath(version), "deltas")
}
func (f *Folder) uselessPath(version int64) string {
	return filepath.Join(f.partPath(version), "useless")
}

// shortcut makes files of tensors that are missing from a version in the folder, where deltas that
// lead there are smaller, and not slower as far as is known. They count as read, and are verified
// like all others. Whatever is wrong with the deltas is noted in v, and the files are read whole;
// an error is that of the context. It gives the bytes that it has made, and when what is left to do
// began: their making, or the reading of the whole.
func (f *Folder) shortcut(ctx context.Context, s *sources, v *Version,
	told Progress) (made int64, began time.Time, err error) {
	missing := f.missing(v)
	if _, err := os.Stat(f.uselessPath(v.Version)); err == nil || missing == 0 {
		return 0, time.Now(), nil
	}
	base, steps, err := f.chain(ctx, s, v, missing)
	if err == nil && len(steps) == 0 {
		return 0, time.Now(), nil
	}
	if err == nil {
		if v.Whole = f.readRates().slower(sizeOf(steps), missing); v.Whole != "" {
			f.note(func(r *rates) { r.Make *= retryGrowth })
			return 0, time.Now(), nil
		}
	}
	again := false // trying it another time may help
	if err == nil {
		err = f.readDeltas(ctx, s, v, steps, told)
		again = err != nil && !storage.IsUnusable(err)
	}
	began = time.Now()
	if err == nil {
		err = f.applyDeltas(ctx, base, v, steps)
	}
	if ctx.Err() != nil {
		return 0, began, ctx.Err()
	}
	if err == nil {
		v.Deltas = len(steps)
		return missing, began, nil
	}
	v.Whole, began = err.Error(), time.Now()
	if again {
		return 0, began, nil
	}
	return 0, began, f.giveUp(v.Version)
}

// giveUp notes that a version's deltas are of no use, so that they are not tried each time
// that a fetch is interrupted.
func (f *Folder) giveUp(version int64) error {
	return errors.Join(os.WriteFile(f.uselessPath(version), nil, 0o644), os.RemoveAll(f.deltasPath(version)))
}

// missing is how many bytes of tensors' files have to be read.
func (f *Folder) missing(v *Version) (sum int64) {
	for _, file := range v.Files {
		if !f.wants(file) {
			continue
		}
		l := f.landing(nil, v, file)
		marked, err := os.ReadFile(l.marks)
		if err != nil || len(marked) != l.pieces() {
			sum += file.Size
			continue
		}
		for i, done := range marked {
			if done == 0 {
				sum += min(f.piece, file.Size-int64(i)*f.piece)
			}
		}
	}
	return sum
}

// wants reports whether a file may come of a delta: one of tensors that no
// version in the folder has.
func (f *Folder) wants(file weights.File) bool {
	return filepath.Ext(file.Name) == safetensors.Extension && f.find(file.Ref) == ""
}

// step is a delta and the version to which it leads.
type step struct {
	*weights.Delta
	version int64
}

// sizeOf is how many bytes deltas have.
func sizeOf(steps []step) (sum int64) {
	for _, step := range steps {
		sum += step.Size
	}
	return sum
}

// chain finds the deltas that lead to v from a version in the folder, the oldest first. There are
// none where they have as many bytes as are missing.
func (f *Folder) chain(ctx context.Context, s storage.Store, v *Version,
	missing int64) (base *Version, steps []step, err error) {
	have := slices.DeleteFunc(f.numbers(), func(n int64) bool { return n >= v.Version })
	if len(have) == 0 {
		return nil, nil, nil
	}
	oldest := have[len(have)-1]
	for n, sum := v.Version, int64(0); n > oldest && len(steps) < maxSteps; {
		d, err := weights.FetchDelta(ctx, s, f.policy, n)
		if errors.Is(err, storage.ErrNotFound) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if sum += d.Size; sum >= missing {
			return nil, nil, nil
		}
		steps = append(steps, step{d, n})
		if base, err := f.Have(d.Base); err == nil && base.Digest == d.BaseManifest {
			slices.Reverse(steps)
			return base, steps, nil
		}
		n = d.Base
	}
	return nil, nil, nil
}

// deltaPath is where the delta that leads to a version is read to.
func (f *Folder) deltaPath(v *Version, to int64) string {
	return filepath.Join(f.deltasPath(v.Version), fmt.Sprintf("v%06d", to))
}

// readDeltas reads deltas into a part, and verifies them. One that was interrupted goes on.
func (f *Folder) readDeltas(ctx context.Context, s *sources, v *Version, steps []step, told Progress) error {
	if err := os.MkdirAll(f.deltasPath(v.Version), 0o755); err != nil {
		return err
	}
	total, done := sizeOf(steps), atomic.Int64{}
	began, before := time.Now(), s.read.Load()
	add := func(n int64) {
		if now := done.Add(n); told != nil {
			told(now, total)
		}
	}
	for _, step := range steps {
		at := f.deltaPath(v, step.version)
		l := &landing{store: s, file: weights.File{Name: filepath.Base(step.Key), Ref: step.Ref}, piece: f.piece,
			path: at, marks: at + ".pieces"}
		if err := l.start(""); err != nil {
			return err
		}
		if err := l.read(ctx, add); err != nil {
			return err
		}
		if err := l.finish(ctx); err != nil {
			return err
		}
	}
	f.measured(s.read.Load()-before, time.Since(began), storeRate)
	return nil
}

// applyDeltas makes the files of v that are wanted, and notes that they are there.
func (f *Folder) applyDeltas(ctx context.Context, base, v *Version, steps []step) (err error) {
	var opened []*os.File
	defer func() {
		for _, file := range opened {
			file.Close()
		}
	}()
	open := func(at string) (*delta.Delta, error) {
		file, err := os.Open(at)
		if err != nil {
			return nil, err
		}
		opened = append(opened, file)
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		return delta.Open(file, info.Size())
	}
	deltas := make([]*delta.Delta, len(steps))
	for i, step := range steps {
		if deltas[i], err = open(f.deltaPath(v, step.version)); err != nil {
			return err
		}
	}
	d := deltas[0]
	if len(deltas) > 1 {
		at := filepath.Join(f.deltasPath(v.Version), "folded")
		if err := fold(ctx, at, deltas); err != nil {
			return err
		}
		if d, err = open(at); err != nil {
			return err
		}
	}
	if err := fits(d, v); err != nil {
		return err
	}
	checkpoint, err := safetensors.Open(base.Dir)
	if err != nil {
		return err
	}
	defer checkpoint.Close()
	return f.apply(ctx, checkpoint, d, v)
}

func fold(ctx context.Context, at string, deltas []*delta.Delta) error {
	into, err := os.Create(at)
	if err != nil {
		return err
	}
	return errors.Join(delta.Fold(ctx, into, deltas...), into.Close())
}

// fits checks that a delta leads to no more than the version's files.
func fits(d *delta.Delta, v *Version) error {
	sizes := map[string]int64{}
	for _, file := range v.Files {
		sizes[file.Name] = file.Size
	}
	for _, t := range d.Tensors {
		if t.Offset+t.Size > sizes[t.File] {
			return fmt.Errorf("%w: the delta leads to another file %s", storage.ErrCorrupt, t.File)
		}
	}
	return nil
}

func (f *Folder) apply(ctx context.Context, base *safetensors.Checkpoint, d *delta.Delta, v *Version) error {
	room := filepath.Join(f.deltasPath(v.Version), "applied")
	if err := os.RemoveAll(room); err != nil { // of one that was interrupted
		return err
	}
	if err := os.Mkdir(room, 0o755); err != nil {
		return err
	}
	made := filepath.Join(room, "files")
	if err := delta.ApplyUnsynced(ctx, base, d, made); err != nil { // all is synced when the version is whole
		return err
	}
	for _, file := range v.Files {
		if !f.wants(file) {
			continue
		}
		l := f.landing(nil, v, file)
		if err := os.Rename(filepath.Join(made, file.Name), l.path); err != nil {
			return err
		}
		if err := os.WriteFile(l.marks, allMarked(l.pieces()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
