package health

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// disks tells how full the disks of directories are when it is asked. Only what an ordinary user may use counts as free.
type disks struct {
	dirs       []string
	size, free *prometheus.Desc
}

func newDisks(dirs []string) *disks {
	return &disks{
		dirs: dirs,
		size: prometheus.NewDesc("rondo_disk_bytes", "Size of the disk that a directory of the process is on.", []string{"dir"}, nil),
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
	// leastRoom is what a disk must have left: writes of a fact and its objects take some megabytes. A small disk is full later.
	leastRoom = 16 << 20
	// leastInodes is how many files more it must be able to hold.
	leastInodes = 1000
)

// lookAtDisks lists the directories whose disk has no room left, or takes no writes, one for each disk. It writes to them where it is told to.
func lookAtDisks(dirs []string, write bool) (full, fail []Outage) {
	looked := map[uint64]bool{}
	for _, dir := range dirs {
		var place unix.Stat_t
		var s unix.Statfs_t
		err := errors.Join(unix.Stat(dir, &place), unix.Statfs(dir, &s))
		if errors.Is(err, unix.ENOENT) {
			continue // it is made when something is written
		}
		if looked[uint64(place.Dev)] && err == nil {
			continue
		}
		looked[uint64(place.Dev)] = true
		if err == nil && write {
			err = tryWrite(dir)
		}
		free, size := s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize)
		switch {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			full = append(full, Outage{Of: dir, Reason: fmt.Sprintf("a file cannot be written: %v", err)})
		case err != nil:
			fail = append(fail, Outage{Of: dir, Reason: err.Error()})
		case free < min(leastRoom, size/50):
			full = append(full, Outage{Of: dir, Reason: fmt.Sprintf("%d KiB are left on its disk", free>>10)})
		case s.Files > 0 && s.Ffree < min(leastInodes, s.Files/50): // some file systems make inodes as they go, and count none
			full = append(full, Outage{Of: dir, Reason: fmt.Sprintf("its disk has room for %d files more (inodes)", s.Ffree)})
		}
	}
	return full, fail
}
