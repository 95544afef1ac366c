package plane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rondo-rl/rondo/retry"
)

// addressFile holds, in the plane's directory, the address of the dashboard that has it locked.
const addressFile = "dashboard.url"

// errNoDashboard means that no dashboard runs for a directory.
var errNoDashboard = errors.New("no dashboard runs there: `rondo up` and `rondo service dashboard` start one")

// notePatience is how long a dashboard waits for commands that look at the note.
const notePatience = time.Second

// NoteDashboard lets commands find the dashboard of a directory until the note is closed, or the
// process ends. It is nil where another dashboard has one.
func NoteDashboard(dir, url string) (note io.Closer, err error) {
	f, err := os.OpenFile(filepath.Join(dir, addressFile), os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("note the dashboard's address: %w", err)
	}
	for deadline := time.Now().Add(notePatience); ; {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
		retry.Sleep(context.Background(), 20*time.Millisecond)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(url), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("note the dashboard's address: %w", err)
	}
	return f, nil
}

// DashboardOf is the address of the dashboard that runs for a directory. The note of a dashboard
// that was killed does not count, as another program may listen at its address now.
func DashboardOf(dir string) (url string, err error) {
	if err := ownDir(dir); err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(dir, addressFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, errNoDashboard)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return "", fmt.Errorf("%s: %w", dir, errNoDashboard)
	case !errors.Is(err, unix.EWOULDBLOCK):
		return "", fmt.Errorf("look whether a dashboard runs for %s: %w", dir, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err == nil && !strings.HasPrefix(string(data), "http://") {
		err = fmt.Errorf("%s: the dashboard is starting: ask again", dir)
	}
	return string(data), err
}
