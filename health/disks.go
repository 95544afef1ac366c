package health

import (
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
