package health

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// disks tells how full the disks of directories are when it is asked. Only what an ordinary
// user may use counts as free.
type disks struct {
	dirs       []string
	size, free *prometheus.Desc
}

func newDisks(dirs []string) *disks {
	return &disks{
		dirs: dirs,
		size: prometheus.NewDesc("rondo_disk_bytes", "Size of the disk that a directory of the process is on.",
			[]string{"dir"}, nil),
		free: prometheus.NewDesc("rondo_disk_free_bytes", "What is left of it.", []string{"dir"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (d *disks) Describe(ch chan<- *prometheus.Desc) {
	ch <- d.size
	ch <- d.free
}

// Collect implements prometheus.Collector.
func (d *disks) Collect(ch chan<- prometheus.Metric) {
	told := map[string]bool{}
	for _, dir := range d.dirs {
		var s unix.Statfs_t
		if told[dir] || unix.Statfs(dir, &s) != nil {
			continue // one that is not made yet
		}
		told[dir] = true
		ch <- prometheus.MustNewConstMetric(d.size, prometheus.GaugeValue, float64(s.Blocks)*float64(s.Bsize), dir)
		ch <- prometheus.MustNewConstMetric(d.free, prometheus.GaugeValue, float64(s.Bavail)*float64(s.Bsize), dir)
	}
}

const (
	// leastRoom is what a disk must have left: writes of a fact and its objects take some
	// megabytes. A small disk is full later.
	leastRoom = 16 << 20
	// leastInodes is how many files more it must be able to hold.
	leastInodes = 1000
)

// trialBytes is the size of a file that is written to see how a disk is.
const trialBytes = 4096

// slowWrite is from when on a small write that is synced is slow.
const slowWrite = time.Second

// diskState is what local disks say of themselves.
type diskState struct {
	full, fail []Outage
	took       map[string]time.Duration // of a write, by directory
	device     map[string]uint64
	asked      time.Time
	wrote      bool
}

// trial is what is asked of a disk now.
type trial struct {
	dir   string
	began time.Time
}

// askDisks looks at the disks.
func (m *Monitor) askDisks(ctx context.Context) (diskState, error) {
	write := time.Since(m.wrote) >= writeEvery
	return m.disks.ask(ctx, func(context.Context) (diskState, error) {
		defer m.trial.Store(nil)
		return m.tryDisks(write), nil
	})
}

// tryDisks lists the directories whose disk has no room left, or takes no writes, one for each
// disk. It writes to them where it is told to.
func (m *Monitor) tryDisks(write bool) diskState {
	state := diskState{asked: time.Now(), wrote: write, took: map[string]time.Duration{}, device: map[string]uint64{}}
	looked := map[uint64]bool{}
	for _, dir := range m.o.Disks {
		m.trial.Store(&trial{dir, time.Now()})
		var place unix.Stat_t
		var s unix.Statfs_t
		err := errors.Join(unix.Stat(dir, &place), unix.Statfs(dir, &s))
		if errors.Is(err, unix.ENOENT) {
			continue // it is made when something is written
		}
		if err == nil {
			state.device[dir] = uint64(place.Dev)
		}
		if looked[uint64(place.Dev)] && err == nil {
			continue
		}
		looked[uint64(place.Dev)] = true
		if err == nil && write {
			began := time.Now()
			err = m.write(dir)
			state.took[dir] = time.Since(began)
		}
		free, size := s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			state.full = append(state.full, Outage{Of: dir, Reason: fmt.Sprintf("a file cannot be written: %v", err)})
		case err != nil:
			state.fail = append(state.fail, Outage{Of: dir, Reason: err.Error()})
		case free < min(leastRoom, size/50):
			state.full = append(state.full, Outage{Of: dir,
				Reason: fmt.Sprintf("%d KiB are left on its disk", free>>10)})
		// some file systems make inodes as they go, and count none
		case s.Files > 0 && s.Ffree < min(leastInodes, s.Files/50):
			state.full = append(state.full, Outage{Of: dir,
				Reason: fmt.Sprintf("its disk has room for %d files more (inodes)", s.Ffree)})
		}
	}
	return state
}

// lookAtDisks takes the answer of the disks. One that has not answered yet is slow,
// and hangs when that lasts.
func (m *Monitor) lookAtDisks(state diskState, err error) {
	if err != nil {
		m.wrote = time.Time{}
		if t := m.trial.Load(); t != nil {
			m.lookAtTrial(*t)
		}
	} else {
		for dir, took := range state.took {
			if took >= slowWrite && !m.processor.lostTime(state.asked) {
				m.slowDisks.note(dir, fmt.Errorf("a write of %d bytes took %s", trialBytes,
					took.Round(100*time.Millisecond)))
			}
		}
		m.device = state.device
		m.outages.set(DiskFull, state.full...)
		m.outages.set(DiskFails, state.fail...)
		if state.wrote {
			m.wrote = state.asked
		}
	}
	if len(state.full)+len(state.fail) > 0 {
		m.wrote = time.Time{} // what has failed must be written until it is well
	}
	m.outages.set(DiskSlow, m.slowDisks.outages()...)
}

// diskIll is the outage of the disk that a directory is on, where that is slow or fails.
func (m *Monitor) diskIll(dir string) (Outage, bool) {
	on, known := m.device[dir]
	for _, o := range m.Outages() {
		if dir == "" || o.Kind != DiskSlow && o.Kind != DiskFails {
			continue
		}
		if of, has := m.device[o.Of]; o.Of == dir || known && has && of == on {
			return o, true
		}
	}
	return Outage{}, false
}

// lookAtTrial tells of a disk that has not answered within Patience.
func (m *Monitor) lookAtTrial(t trial) {
	lasts := time.Since(t.began)
	how := fmt.Sprintf("its disk has not answered for %s", lasts.Round(time.Second))
	switch {
	case lasts >= hungAfter:
		m.slowDisks.note(t.dir, nil)
		m.outages.set(DiskFails, Outage{Of: t.dir, Since: t.began, Reason: how})
	case !m.processor.lostTime(t.began):
		m.slowDisks.note(t.dir, errors.New(how))
	}
}

// tryNamed writes a file in a directory that has lost its name before anything is written to it.
func tryNamed(dir string) error {
	f, err := os.CreateTemp(dir, ".rondo-probe-*")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		return errors.Join(err, f.Close())
	}
	return syncTrial(f)
}

// syncTrial writes a little to a file, syncs it and closes it.
func syncTrial(f *os.File) error {
	_, err := f.Write(make([]byte, trialBytes))
	return errors.Join(err, f.Sync(), f.Close())
}

// TimeWrite is how long a small write to a directory takes that is synced. A disk that hangs
// ends it with the context.
func TimeWrite(ctx context.Context, dir string) (time.Duration, error) {
	began := time.Now()
	var p probe[struct{}]
	_, err := p.ask(ctx, func(context.Context) (struct{}, error) { return struct{}{}, tryWrite(dir) })
	return time.Since(began), err
}
