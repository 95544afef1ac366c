package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/sandbox"
)

// hogLimit is the memory that sandboxes of hogs have, and hogEnd what a hog that
// nothing stops takes, in bytes.
const (
	hogLimit = 128 << 20
	hogEnd   = 4 * hogLimit
)

// hogs take memory that is no process's own pages. Each takes some at a time, slowly enough for a
// poller, and says how much.
var hogs = map[string]func() (taken int64, err error){
	"shared memory": func() (int64, error) {
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4<<20, unix.IPC_CREAT|0o600)
		if err != nil {
			return 0, err
		}
		data, err := unix.SysvShmAttach(id, 0, 0)
		if err != nil {
			return 0, err
		}
		for i := 0; i < len(data); i += 4096 {
			data[i] = 1
		}
		return 4 << 20, unix.SysvShmDetach(data)
	},
	"files in memory": func() (int64, error) {
		fd, err := unix.MemfdCreate("hog", 0)
		if err != nil {
			return 0, err
		}
		n, err := unix.Write(fd, make([]byte, 4<<20))
		return int64(n), err
	},
	"files in /dev/shm": func() (int64, error) {
		file, err := os.CreateTemp("/dev/shm", "")
		if err != nil {
			return 0, err
		}
		n, err := file.Write(make([]byte, 4<<20))
		return int64(n), err
	},
	"sockets": func() (taken int64, err error) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return 0, err
		}
		for _, fd := range pair {
			for {
				n, err := unix.Write(fd, make([]byte, 64<<10))
				if err != nil {
					break // it is full
				}
				taken += int64(n)
			}
		}
		return taken, nil
	},
	"page tables": func() (int64, error) {
		const area = 2 << 30
		data, err := unix.Mmap(-1, 0, area, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return 0, err
		}
		_ = unix.Madvise(data, unix.MADV_NOHUGEPAGE)
		var sum byte
		for i := 0; i < area; i += 2 << 20 {
			sum += data[i]
		}
		return area/512 + int64(sum), nil
	},
}

func init() {
	actors["hog"] = func() {
		take := hogs[os.Getenv("HOG")]
		var all int64
		for all < hogEnd {
			n, err := take()
			if err != nil {
				fmt.Printf("refused: %v", err)
				return
			}
			all += n
			time.Sleep(5 * time.Millisecond)
		}
		fmt.Print("it has it all")
	}
}

// TestMemoryThatIsNoProcesss: what no process has as its pages counts, too, or is refused, also
// where no control group counts it.
func TestMemoryThatIsNoProcesss(t *testing.T) {
	for name := range hogs {
		for _, group := range []bool{true, false} {
			t.Run(name+"/cgroup="+strconv.FormatBool(group), func(t *testing.T) {
				if !group {
					sandbox.WithoutCgroups(t)
				} else if !sandbox.LimitsByCgroup() {
					t.Skip("control groups cannot be made here")
				}
				spec := sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: hogLimit,
					DiskBytes: 32 << 20, Wall: time.Minute}}
				sb, result, err := tryInside(t, spec, map[string]string{"RONDO_TEST_ACTOR": "hog",
					"HOG": name, "GOMAXPROCS": "1"})
				if errors.Is(err, sandbox.ErrOutOfMemory) && group {
					// the kernel frees this memory only as its process ends, later than its pages,
					// and may meanwhile take the first process, too
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if out := string(result.Stdout); !result.OutOfMemory && !strings.HasPrefix(out, "refused: ") {
					t.Errorf("out of memory %v, exit code %d, timed out %v, it says %q", result.OutOfMemory,
						result.ExitCode, result.TimedOut, out)
				}
				// What it left behind goes, too: a command after it is killed for nothing.
				eventually(t, "a command runs", func() bool {
					result := run(t, sb, sh("sleep 0.3; echo alive"))
					return string(result.Stdout) == "alive\n" && !result.OutOfMemory
				})
			})
		}
	}
}
