package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/health"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/open"
)

// trySandbox runs a program in a sandbox. Where the plane runs elsewhere, this
// machine need not have one.
func trySandbox(ctx context.Context, elsewhere bool) []finding {
	report, err := sandbox.Probe(ctx)
	if err != nil && elsewhere {
		return []finding{{"sandbox", levelWarning,
			"no tool runner and no scorer can run on this machine, or in this container: " + err.Error(),
			"none need run here; in Compose, ask where they do: docker compose exec toolrunner rondo doctor"}}
	}
	if err != nil {
		return []finding{trouble("sandbox", err,
			"tool runners and scorers need a machine where this works; the other services do not")}
	}
	f := ok("sandbox", "a program ran: isolation %s, file system %s, cgroup %s, %d CPUs, first process %s",
		report.Isolation, report.Filesystem, report.Cgroup, runtime.NumCPU(), report.FirstProcess)
	if report.Cgroup == "none" {
		f.Level, f.Do = levelWarning,
			"give this user a delegated cgroup (systemd-run --user --scope -p Delegate=yes rondo …) for hard memory limits"
		f.Found += "; " + report.Detail
	}
	if len(report.SharedInodes) > 0 {
		f.Level = levelWarning
		f.Do = strings.TrimPrefix(f.Do+
			"; run as root, where nothing is mounted below these folders, to give each sandbox inodes of its own", "; ")
		f.Found += "; sandboxes share inodes of " + strings.Join(report.SharedInodes, ", ") +
			": programs of two of them can pass bits by locks on these"
	}
	return []finding{f}
}

// aboutMachine tells whether doctor had a processor while it ran the checks. how is how
// it had none, "" if it had.
func aboutMachine(how string) finding {
	if how != "" {
		return finding{"machine", levelWarning, fmt.Sprintf(
			"%s: %s. What the other checks found slow or silent may be well", health.MachineStarved, how),
			"stop other programs, or give this machine or its container more processors, and run doctor again"}
	}
	return ok("machine", "%d processors, and doctor had one when it wanted one", runtime.NumCPU())
}

// A directory with less room than this stops a run soon, or at once.
const (
	littleRoom = 10 << 30
	noRoom     = 1 << 30
)

func freeBytes(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return s.Bavail * uint64(s.Bsize), nil
}

// disk is how a directory's disk is looked at.
type disk struct {
	free  func(dir string) (uint64, error)
	write func(ctx context.Context, dir string) (took time.Duration, err error) // a small file, and sync it
}

// slowWrite is from when on that is slow.
const slowWrite = time.Second

// tryDirectory looks whether a plane could live in a directory.
func tryDirectory(ctx context.Context, dir string, d disk) []finding {
	place, err := nearest(dir)
	if err != nil {
		return []finding{trouble("directory", err, "name another one by --dir")}
	}
	if err := unix.Access(place, unix.W_OK); err != nil {
		return []finding{trouble("directory", fmt.Errorf("%s is not writable: %w", place, err),
			"name another one by --dir, or change its owner")}
	}
	bytes, err := d.free(place)
	if err != nil {
		return []finding{trouble("directory", err, "name another one by --dir")}
	}
	const more = "make room, or name another one by --dir: `rondo gc` lists objects that nothing refers to any more"
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	took, err := d.write(ctx, place)
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%s %s: a small write to %s has not ended for %s, and it need not be full", health.DiskSlow,
			dir, place, took.Round(time.Second))
		return []finding{trouble("directory", err, slowAdvice)}
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return []finding{trouble("directory", fmt.Errorf("%s %s: %w", health.DiskFull, dir, err), more)}
	case err != nil:
		return []finding{trouble("directory", fmt.Errorf("%s %s: %w", health.DiskFails, dir, err),
			"see to the disk, or name another directory by --dir")}
	}
	f := ok("directory", "%s is writable, %s free", dir, byteCount(bytes))
	switch {
	case bytes < noRoom:
		f.Level, f.Do = levelTrouble, more
	case bytes < littleRoom:
		f.Level, f.Do = levelWarning, more
	}
	if took < slowWrite {
		return []finding{f}
	}
	slow := fmt.Sprintf("%s %s: a small write took %s, and it need not be full", health.DiskSlow, dir,
		took.Round(100*time.Millisecond))
	return []finding{f, {"directory", levelWarning, slow, slowAdvice}}
}

const slowAdvice = "see what else uses this disk, or name a directory on a faster one by --dir"

// nearest is a directory, or where it would be made.
func nearest(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err == nil && info.IsDir():
			return dir, nil
		case err == nil:
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}

func byteCount(n uint64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// storePatience is how long a store may take for all of its check, or to compare
// one run with its archive.
var storePatience = 8 * time.Second

// cleanUp is how long the removal of what was written may take behind that.
const cleanUp = 2 * time.Second

// tryObjects opens the store, which tries out conditional writes in a bucket, and
// writes and reads an object.
func tryObjects(ctx context.Context, location string) []finding {
	if location == "" {
		return []finding{trouble("store", errors.New("no store is named"),
			"--nats needs --store: a directory that all services see, or s3://bucket/prefix?endpoint=URL")}
	}
	if !strings.Contains(location, "://") {
		if _, err := os.Stat(location); errors.Is(err, fs.ErrNotExist) {
			return []finding{ok("store", "%s will be made", location)}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	store, err := open.Open(ctx, location)
	if err == nil {
		defer store.Close()
		err = swapAndRead(ctx, store)
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%s does not answer within %s: %w", withoutQuery(location), storePatience, err)
	}
	if err != nil {
		return []finding{trouble("store", err, storeAdvice(ctx, location, err))}
	}
	return []finding{ok("store", "%s can be written, swapped and read", withoutQuery(location))}
}

// swapAndRead swaps a small object, as the pointer to the newest weights moves,
// and reads and deletes it.
func swapAndRead(ctx context.Context, store storage.Store) (err error) {
	key := "rondo-probe/doctor-" + fmt.Sprint(os.Getpid())
	if err := store.Delete(ctx, key); err != nil {
		return err
	}
	defer func() {
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		err = errors.Join(err, store.Delete(removing, key))
	}()
	etag, err := store.CompareAndSwap(ctx, key, "", []byte("one"))
	if err != nil {
		return err
	}
	if _, err := store.CompareAndSwap(ctx, key, etag, []byte("two")); err != nil {
		return err
	}
	data, err := store.Get(ctx, key)
	if err == nil && string(data) != "two" {
		err = fmt.Errorf("%s holds %q after %q was written", key, data, "two")
	}
	return err
}

func storeAdvice(ctx context.Context, location string, err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "conditional write") || strings.Contains(text, "If-Match"):
		return "use a server with atomic conditional writes: Amazon S3, or versitygw 1.8.0 or newer"
	case strings.Contains(text, "RequestTimeTooSkewed"):
		return "set this machine's clock by NTP: it is more than 15 minutes off the server's"
	case strings.Contains(text, "refuses the credentials") || strings.Contains(text, "credentials"):
		return "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to a pair that may read, write, list and delete in the bucket"
	case strings.Contains(text, "bucket does not exist"):
		return "make the bucket, or add create=true to the URL"
	case errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT):
		return "make room on the store's disk"
	case errors.Is(err, fs.ErrPermission):
		return "give this user the directory"
	case ctx.Err() != nil && !strings.Contains(location, "://"):
		return "its disk is very slow or hangs, and need not be full: " + slowAdvice + " or --store"
	case ctx.Err() != nil || strings.Contains(text, "dial") || strings.Contains(text, "connection refused"):
		return "see that the server runs and that the endpoint in the URL is the one at which it listens"
	}
	return ""
}

// withoutQuery is a location without its settings.
func withoutQuery(location string) string {
	location, _, _ = strings.Cut(location, "?")
	return location
}
