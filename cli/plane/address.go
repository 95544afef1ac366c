package plane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// addressFile holds, in the plane's directory, the address of the dashboard that has it locked.
const addressFile = "dashboard.url"

// errNoDashboard means that no dashboard runs for a directory.
var errNoDashboard = errors.New("no dashboard runs there: `rondo up` and `rondo service dashboard` start one")

// NoteDashboard lets commands find the dashboard of a directory until the note is closed, or the
// process ends.
func NoteDashboard(dir, url string) (note io.Closer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, addressFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// A command that looks has the lock for a moment.
	if err = unix.Flock(int(f.Fd()), unix.LOCK_SH); err == nil {
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

// DashboardOf is the address of the dashboard that runs for a directory. What one that was killed
// has left does not count: another program may listen there now.
func DashboardOf(dir string) (url string, err error) {
	if err := ownDir(dir); err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(dir, addressFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", dir, errNoDashboard)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return "", fmt.Errorf("%s: %w", dir, errNoDashboard)
	}
	data, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err == nil && !strings.HasPrefix(string(data), "http://") {
		err = fmt.Errorf("%s: the dashboard is starting: ask again", dir)
	}
	return string(data), err
}
