package runfile

import (
	"strings"
	"testing"
)

// TestDisks: a task has what it asks for up to what its run allows, all of that where it says
// nothing, and never a little more than every run has.
func TestDisks(t *testing.T) {
	for _, c := range []struct {
		run         Size
		asked, want int
	}{
		{0, 0, 0}, {0, 10240, 0}, {4 << 30, 0, 4096}, {4 << 30, 1024, 1024}, {4 << 30, 10240, 4096}, {4 << 30, 100, 0},
		{4 << 30, DefaultDiskMB, 0}, {300 << 20, 0, 300},
	} {
		if got := (Limits{Disk: c.run}).DiskMB(c.asked); got != c.want {
			t.Errorf("a task that asks for %d MiB of a run with %s has %d, want %d", c.asked, c.run, got, c.want)
		}
	}
	for want, change := range map[string]func(*RunConfig){
		"":                       func(c *RunConfig) { c.Limits.Disk, c.Tasks[0].DiskMB = 20<<30, 20<<10 },
		"limits.disk 256MiB":     func(c *RunConfig) { c.Limits.Disk = 256 << 20 },
		"limits.disk 2TiB":       func(c *RunConfig) { c.Limits.Disk = 2 << 40 },
		"disk_mb 1024: must be":  func(c *RunConfig) { c.Tasks[0].DiskMB = 1024 },
		"disk_mb 100: must be":   func(c *RunConfig) { c.Limits.Disk, c.Tasks[0].DiskMB = 1<<30, 100 },
		"disk_mb 2048: must be ": func(c *RunConfig) { c.Limits.Disk, c.Tasks[0].DiskMB = 1<<30, 2048 },
	} {
		cfg := validConfig()
		change(&cfg)
		if err := cfg.Validate(); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
