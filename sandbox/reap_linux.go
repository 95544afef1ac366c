package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reapInterval is how often each process that has made a sandbox looks for what others left behind.
var reapInterval = 30 * time.Second

// reaping clears what dead owners left behind, now and from time to time for as
// long as this process lives.
var reaping = sync.OnceFunc(func() {
	place := findPlacement()
	reap(place)
	go func() {
		for range time.Tick(reapInterval) {
			reap(place)
		}
	}()
})

// reap clears what owners that are no more have left behind: control groups, with what still runs
// in them, and private folders. Mounts need no clearing, as they end with the namespace of the
// processes that see them.
func reap(place placement) {
	seen := map[string]bool{}
	for _, parent := range place.parents {
		if seen[parent] {
			continue
		}
		seen[parent] = true
		for _, group := range orphans(parent) {
			killGroup(group)
			_ = removeGroup(group)
		}
		for _, group := range abandoned(parent) {
			_ = os.Remove(group)
		}
	}
	for _, folder := range orphans(os.TempDir()) {
		_ = os.RemoveAll(folder)
	}
}

// ownership is what the name of a group or a private folder says.
type ownership struct {
	namespace, started string
	owner              int
}

// owned lists what owners made in a folder.
func owned(parent string) map[string]ownership {
	found, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"-*"))
	all := map[string]ownership{}
	for _, name := range found {
		parts := strings.Split(filepath.Base(name), "-") // rondo, sandbox, namespace, process, start, number
		if len(parts) != 6 {
			continue
		}
		if owner, err := strconv.Atoi(parts[3]); err == nil {
			all[name] = ownership{parts[2], parts[4], owner}
		}
	}
	return all
}

// orphans are what dead owners of this process namespace made in a folder. Of another namespace's
// owners nothing can be known.
func orphans(parent string) []string {
	if !procIsOurs() {
		return nil
	}
	var dead []string
	for name, o := range owned(parent) {
		if o.namespace == processNamespace() && startTime(o.owner) != o.started {
			dead = append(dead, name)
		}
	}
	return dead
}

// abandonedAfter is when an empty group counts as left behind whoever made it: with a container its
// process namespace is gone, and nobody is left who could know the owner.
const abandonedAfter = time.Hour

// abandoned are old groups of other process namespaces. Those in which anything runs the
// kernel refuses to remove.
func abandoned(parent string) []string {
	var old []string
	for name, o := range owned(parent) {
		info, err := os.Stat(name)
		if err == nil && o.namespace != processNamespace() && time.Since(info.ModTime()) > abandonedAfter {
			old = append(old, name)
		}
	}
	return old
}

// killGroup ends what runs in a control group: at once where the kernel can
// (v2), else round by round.
func killGroup(group string) {
	if write(filepath.Join(group, "cgroup.kill"), "1") == nil {
		return
	}
	for deadline := time.Now().Add(removeTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if len(bytes.TrimSpace(text)) == 0 {
			return
		}
		for line := range bytes.Lines(text) {
			if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// removeTime bounds the wait for the kernel to let go of a group whose processes are dead.
const removeTime = 2 * time.Second

func removeGroup(folder string) error {
	for deadline := time.Now().Add(removeTime); ; {
		err := os.Remove(folder)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
}

// groupPrefix starts the name of every group. The rest says whose it is, so that a later start can
// tell what is left behind: process namespace, process, its start time, number.
const groupPrefix = "rondo-sandbox"

func groupName(number int64) string {
	return fmt.Sprintf("%s-%s-%d", groupPrefix, self(), number)
}

var self = sync.OnceValue(func() string {
	return fmt.Sprintf("%s-%d-%s", processNamespace(), os.Getpid(), startTime(os.Getpid()))
})

func processNamespace() string {
	link, _ := os.Readlink("/proc/self/ns/pid") // pid:[4026531836]
	return strings.TrimSuffix(strings.TrimPrefix(link, "pid:["), "]")
}

// startTime is a process's start in clock ticks since boot, empty when there is no such process.
func startTime(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 20 {
		return ""
	}
	return string(fields[19])
}

// procIsOurs: below /proc are the processes of this namespace, and not those of one above it, where
// the same numbers are others.
var procIsOurs = sync.OnceValue(func() bool {
	link, err := os.Readlink("/proc/self")
	return err == nil && link == strconv.Itoa(os.Getpid())
})
