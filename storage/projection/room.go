package projection

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// room is how much of its disk must be free before Pebble goes on after the disk was full: some
// memtables, the log and the manifest.
const room = 4 * memTableBytes

// roomPause is the time between two looks at the disk.
const roomPause = 200 * time.Millisecond

// waitForRoom is the disk's file system, on which writes wait where it is full: Pebble ends the
// process when it cannot write its log or its manifest. All that writes the projection waits as
// long. While something waits, full is set.
func waitForRoom(dir string, full *atomic.Bool) vfs.FS {
	return vfs.OnDiskFull(vfs.Default, func() {
		defer full.Store(false)
		for {
			usage, err := vfs.Default.GetDiskUsage(dir)
			if err != nil || usage.AvailBytes >= room {
				return
			}
			full.Store(true)
			time.Sleep(roomPause)
		}
	})
}
