package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
)

// cgroup limits a sandbox's memory, number of tasks and processor time where this process may make
// control groups. Without any it does nothing, and the sandbox limits itself: memory by polling,
// tasks by a resource limit.
type cgroup struct {
	place   placement
	folders map[string]string // controller -> this sandbox's folder
}

// placement is where control groups can be made, found once.
type placement struct {
	version  string            // "v1" or "v2", by which memory is limited, or "none"
	versions map[string]string // controller -> its own
	parents  map[string]string // controller -> folder to make groups in
}

var sequence atomic.Int64

// newCgroup makes a group with the limits. It takes what it can get.
func newCgroup(limits Limits) *cgroup {
	g := &cgroup{place: findPlacement(), folders: map[string]string{}}
	name := groupName(sequence.Add(1))
	for controller, parent := range g.place.parents {
		if controller == "cpu" && limits.CPUs == 0 {
			continue
		}
		folder := filepath.Join(parent, name)
		if err := g.add(controller, folder, limits); err == nil {
			g.folders[controller] = folder
		} else {
			_ = os.Remove(folder)
		}
	}
	return g
}

func (g *cgroup) add(controller, folder string, limits Limits) error {
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, os.ErrExist) { // v2: one folder for all
		return err
	}
	return g.bound(controller, folder, limits)
}

func (g *cgroup) bound(controller, folder string, limits Limits) error {
	for _, b := range g.bounds(controller, limits) {
		if err := write(filepath.Join(folder, b.file), b.value); err != nil && !b.optional {
			return err
		}
	}
	return nil
}

// limit puts other limits in the place of those that the group was made with.
func (g *cgroup) limit(limits Limits) error {
	for controller, folder := range g.folders {
		if err := g.bound(controller, folder, limits); err != nil {
			return err
		}
	}
	return nil
}

// start calls fork on a thread of its own, which starts a process that does nothing before it is
// told to, so that the process is in the group. In a v1 hierarchy that thread goes into the group
// itself for as long as it takes, and its child is born there: to move a process, the kernel first
// waits until no other one is forking or ending anywhere, which takes longer than all else.
func (g *cgroup) start(fork func() (pid int, err error)) error {
	var inside []string
	for controller, folder := range g.folders {
		if g.place.versions[controller] != "v1" {
			continue
		}
		if write(filepath.Join(folder, "tasks"), "0") == nil {
			inside = append(inside, controller)
		} else {
			g.lose(controller)
		}
	}
	pid, err := fork()
	for _, controller := range inside {
		err = errors.Join(err, write(filepath.Join(g.place.parents[controller], "tasks"), "0"))
	}
	if err != nil {
		return err
	}
	for controller, folder := range g.folders {
		if g.place.versions[controller] == "v2" &&
			write(filepath.Join(folder, "cgroup.procs"), strconv.Itoa(pid)) != nil {
			g.lose(controller)
		}
	}
	return nil
}

// lose does without a group that the process could not be put into.
func (g *cgroup) lose(controller string) {
	_ = os.Remove(g.folders[controller])
	delete(g.folders, controller)
}

// bound is what is written to a file of a group; an optional one may be refused.
type bound struct {
	file, value string
	optional    bool
}

// cpuPeriod is what the kernel shares processor time by, in microseconds.
const cpuPeriod = 100_000

func (g *cgroup) bounds(controller string, limits Limits) []bound {
	// The tmpfs is charged to the group as well.
	memory, tasks := strconv.FormatInt(limits.MemoryBytes+limits.DiskBytes, 10),
		strconv.Itoa(limits.PIDs+jail.OwnThreads)
	quota := strconv.Itoa(int(limits.CPUs * cpuPeriod))
	switch controller + "/" + g.place.versions[controller] {
	case "memory/v1":
		// TCP's buffers count apart
		return []bound{{file: "memory.limit_in_bytes", value: memory}, {"memory.kmem.tcp.limit_in_bytes", memory, true}}
	case "memory/v2": // without swap accounting there is no limit of swap
		return []bound{{file: "memory.max", value: memory}, {"memory.swap.max", "0", true},
			{"memory.oom.group", "0", true}}
	case "cpu/v1":
		return []bound{{file: "cpu.cfs_period_us", value: strconv.Itoa(cpuPeriod)},
			{file: "cpu.cfs_quota_us", value: quota}}
	case "cpu/v2":
		return []bound{{file: "cpu.max", value: quota + " " + strconv.Itoa(cpuPeriod)}}
	case "pids/v1", "pids/v2":
		return []bound{{file: "pids.max", value: tasks}}
	}
	return nil
}

func write(file, value string) error { return os.WriteFile(file, []byte(value), 0) }

// memory is what the sandbox uses now, in bytes; 0 where no group counts.
func (g *cgroup) memory() int64 {
	file := "memory.usage_in_bytes"
	if g.place.version == "v2" {
		file = "memory.current"
	}
	text, err := os.ReadFile(filepath.Join(g.folders["memory"], file))
	if err != nil {
		return 0
	}
	bytes, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return bytes
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

// kill ends what runs in the groups.
func (g *cgroup) kill() {
	for _, folder := range g.folders {
		killGroup(folder)
	}
}

func (g *cgroup) remove() error {
	var failed error
	for _, folder := range g.folders {
		failed = errors.Join(failed, removeGroup(folder))
	}
	return failed
}

// findPlacement looks for a folder of each hierarchy in which groups can be made.
var findPlacement = sync.OnceValue(func() placement {
	place := placement{version: "none", versions: map[string]string{}, parents: map[string]string{}}
	for controller, candidates := range groupFolders() {
		for _, folder := range candidates.folders {
			if !usable(folder, controller, candidates.version) {
				continue
			}
			place.parents[controller], place.versions[controller] = folder, candidates.version
			if controller == "memory" {
				place.version = candidates.version
			}
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
	file := map[string]string{
		"memory/v1": "memory.limit_in_bytes", "memory/v2": "memory.max", "pids/v1": "pids.max", "pids/v2": "pids.max",
		"cpu/v1": "cpu.cfs_quota_us", "cpu/v2": "cpu.max",
	}[controller+"/"+version]
	_, err := os.Stat(filepath.Join(probe, file))
	return err == nil
}

// limited are the controllers that are used, from whichever hierarchy has them: in a hybrid
// system each may be in another.
var limited = []string{"memory", "pids", "cpu"}

type candidates struct {
	version string
	folders []string
}

// groupFolders lists for each controller where groups could be made: below this process's
// own group, for v2 also below each of its ancestors, since a group that holds processes
// cannot have limited children.
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
		for _, controller := range limited {
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
		if _, v1 := found[controller]; !v1 && slices.Contains(limited, controller) {
			found[controller] = candidates{"v2", folders}
		}
	}
}

// groupMount is where a hierarchy is mounted, and which of its groups is seen there.
type groupMount struct{ root, point string }

func (m groupMount) folder(path string) string {
	return filepath.Join(m.point, strings.TrimPrefix(path, strings.TrimSuffix(m.root, "/")))
}

// groupMounts reads /proc/self/mountinfo: "36 35 98:0 /root /point options -
// type source controllers".
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
