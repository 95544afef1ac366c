package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
)

// cgroup limits a sandbox's memory and number of tasks where this process may make control groups. Without any it does nothing,
// and the sandbox limits itself: memory by polling, tasks by a resource limit.
type cgroup struct {
	place   placement
	folders map[string]string // controller -> this sandbox's folder
}

// placement is where control groups can be made, found once.
type placement struct {
	version string            // "v1", "v2" or "none"
	parents map[string]string // controller -> folder to make groups in
}

var sequence atomic.Int64

// newCgroup puts the process, which must still wait, into a new group with the limits. It takes what it can get.
func newCgroup(limits Limits, pid int) *cgroup {
	g := &cgroup{place: findPlacement(), folders: map[string]string{}}
	name := groupName(sequence.Add(1))
	for controller, parent := range g.place.parents {
		folder := filepath.Join(parent, name)
		if err := g.add(controller, folder, limits, pid); err == nil {
			g.folders[controller] = folder
		} else {
			_ = os.Remove(folder)
		}
	}
	return g
}

func (g *cgroup) add(controller, folder string, limits Limits, pid int) error {
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // v2: one folder for both
		return err
	}
	// The tmpfs is charged to the group as well.
	memory, tasks := limits.MemoryBytes+limits.DiskBytes, int64(limits.PIDs+jail.OwnThreads)
	settings := map[string]int64{"pids.max": tasks}
	if controller == "memory" {
		settings = map[string]int64{"memory.limit_in_bytes": memory}
		if g.place.version == "v2" {
			settings = map[string]int64{"memory.max": memory}
			_ = write(filepath.Join(folder, "memory.swap.max"), 0) // not there without swap accounting
			_ = write(filepath.Join(folder, "memory.oom.group"), 0)
		}
	}
	for file, value := range settings {
		if err := write(filepath.Join(folder, file), value); err != nil {
			return err
		}
	}
	return write(filepath.Join(folder, "cgroup.procs"), int64(pid))
}

func write(file string, value int64) error {
	return os.WriteFile(file, strconv.AppendInt(nil, value, 10), 0)
}

func (g *cgroup) limitsMemory() bool { return g.folders["memory"] != "" }

// oomKills is how many processes of the sandbox the kernel killed for want of memory.
func (g *cgroup) oomKills() int64 {
	file := "memory.oom_control"
	if g.place.version == "v2" {
		file = "memory.events"
	}
	if !g.limitsMemory() {
		return 0
	}
	text, err := os.ReadFile(filepath.Join(g.folders["memory"], file))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) == 2 && string(fields[0]) == "oom_kill" {
			kills, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kills
		}
	}
	return 0
}

// removeTime bounds the wait for the kernel to let go of a group whose processes are dead.
const removeTime = 2 * time.Second

func (g *cgroup) remove() error {
	var failed error
	for _, folder := range g.folders {
		failed = errors.Join(failed, removeGroup(folder))
	}
	return failed
}

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

// groupPrefix starts the name of every group. The rest says whose it is, so that a later start can tell what is left behind:
// process namespace, process, its start time, number.
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

// findPlacement looks for a folder of each hierarchy in which groups can be made, and clears what dead owners left there.
var findPlacement = sync.OnceValue(func() placement {
	place := placement{version: "none", parents: map[string]string{}}
	for controller, candidates := range groupFolders() {
		for _, folder := range candidates.folders {
			if !usable(folder, controller, candidates.version) {
				continue
			}
			place.parents[controller], place.version = folder, candidates.version
			reap(folder)
			break
		}
	}
	return place
})

// usable makes a group to see whether that works and whether the controller is there.
func usable(folder, controller, version string) bool {
	probe := filepath.Join(folder, groupName(0))
	if version == "v2" {
		// Refused where processes live in the folder itself; then its parent is the next candidate.
		_ = os.WriteFile(filepath.Join(folder, "cgroup.subtree_control"), []byte("+"+controller), 0)
	}
	if err := os.Mkdir(probe, 0o755); err != nil {
		return false
	}
	defer os.Remove(probe)
	file := map[string]string{"memory/v1": "memory.limit_in_bytes", "memory/v2": "memory.max", "pids/v1": "pids.max", "pids/v2": "pids.max"}[controller+"/"+version]
	_, err := os.Stat(filepath.Join(probe, file))
	return err == nil
}

// reap removes the groups of owners that are no more, and kills what still runs there.
func reap(parent string) {
	for _, group := range orphans(parent) {
		killGroup(group)
		_ = removeGroup(group)
	}
}

// reapFolders removes the private folders that owners of sandboxes without isolation left behind.
var reapFolders = sync.OnceFunc(func() {
	for _, folder := range orphans(os.TempDir()) {
		_ = os.RemoveAll(folder)
	}
})

// orphans are what dead owners of this process namespace made in a folder.
func orphans(parent string) []string {
	found, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"-"+processNamespace()+"-*"))
	return slices.DeleteFunc(found, func(name string) bool {
		parts := strings.Split(filepath.Base(name), "-") // rondo, sandbox, namespace, process, start, number
		if len(parts) != 6 {
			return true
		}
		owner, err := strconv.Atoi(parts[3])
		return err != nil || startTime(owner) == parts[4]
	})
}

func killGroup(group string) {
	text, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for line := range bytes.Lines(text) {
		if pid, err := strconv.Atoi(string(bytes.TrimSpace(line))); err == nil && pid > 1 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

type candidates struct {
	version string
	folders []string
}

// groupFolders lists for each controller where groups could be made: below this process's own group, for v2 also below each
// of its ancestors, since a group that holds processes cannot have limited children.
func groupFolders() map[string]candidates {
	found := map[string]candidates{}
	mounts := groupMounts()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return found
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range []string{"memory", "pids"} {
			if mount, ok := mounts[controller]; ok && slices.Contains(strings.Split(parts[1], ","), controller) {
				found[controller] = candidates{"v1", []string{mount.folder(parts[2])}}
			}
		}
		if mount, ok := mounts["v2"]; ok && parts[0] == "0" {
			unified(found, mount, parts[2])
		}
	}
	return found
}

func unified(found map[string]candidates, mount groupMount, path string) {
	var folders []string
	for folder := mount.folder(path); strings.HasPrefix(folder, mount.point); folder = filepath.Dir(folder) {
		folders = append(folders, folder)
	}
	controllers, _ := os.ReadFile(filepath.Join(mount.point, "cgroup.controllers"))
	for _, controller := range strings.Fields(string(controllers)) {
		if _, v1 := found[controller]; !v1 && (controller == "memory" || controller == "pids") {
			found[controller] = candidates{"v2", folders}
		}
	}
}

// groupMount is where a hierarchy is mounted, and which of its groups is seen there.
type groupMount struct{ root, point string }

func (m groupMount) folder(path string) string {
	return filepath.Join(m.point, strings.TrimPrefix(path, strings.TrimSuffix(m.root, "/")))
}

// groupMounts reads /proc/self/mountinfo: "36 35 98:0 /root /point options - type source controllers".
func groupMounts() map[string]groupMount {
	found := map[string]groupMount{}
	file, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return found
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		place, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(place) < 5 || len(kind) < 3 {
			continue
		}
		mount := groupMount{root: place[3], point: place[4]}
		switch kind[0] {
		case "cgroup2":
			found["v2"] = mount
		case "cgroup":
			for _, controller := range strings.Split(kind[2], ",") {
				found[controller] = mount
			}
		}
	}
	return found
}
