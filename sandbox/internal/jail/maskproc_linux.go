package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Files and folders of /proc that tell of the host's kernel, devices and other users, and that no
// program of a sandbox needs. Most are closed to the sandbox's user by their mode, but that is the
// kernel's choice and has changed between versions.
var hiddenFromProc = []string{
	"acpi", "asound", "bootconfig", "buddyinfo", "bus", "cmdline", "config.gz", "consoles", "crypto", "device-tree",
	"devices", "diskstats", "dma", "driver", "dynamic_debug",
	"execdomains", "fb", "fs", "interrupts", "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys",
	"kmsg", "kpagecgroup", "kpagecount", "kpageflags",
	"latency_stats", "locks", "mdstat", "misc", "modules", "mtrr", "pagetypeinfo", "partitions", "sched_debug",
	"schedstat", "scsi", "slabinfo", "softirqs", "swaps",
	"sysrq-trigger", "timer_list", "timer_stats", "tty", "version_signature", "vmallocinfo", "zoneinfo",
	// Counts of the whole host, which one sandbox changes as it likes and another one
	// reads to the last digit.
	"pressure", "vmstat", "sys/fs/aio-nr", "sys/fs/dentry-state", "sys/fs/file-nr", "sys/fs/inode-nr",
	"sys/fs/inode-state", "sys/kernel/pty/nr",
}

// What covers files and folders. Nobody may open either, and both are removed once
// they lie in their places.
const (
	coverFile   = "/.covered-file"
	coverFolder = "/.covered-folder"
)

// maskProc covers what a sandbox need not see of /proc.
func maskProc() error {
	if err := errors.Join(os.Mkdir(coverFolder, 0), os.WriteFile(coverFile, nil, 0)); err != nil {
		return err
	}
	for _, name := range hiddenFromProc {
		target := "/proc/" + name
		info, err := os.Lstat(target)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode()&fs.ModeSymlink != 0 {
			continue
		}
		if err != nil {
			return err
		}
		if err := cover(target, info.IsDir()); err != nil {
			return fmt.Errorf("hide %s: %w", target, err)
		}
	}
	return errors.Join(os.Remove(coverFolder), os.Remove(coverFile))
}

func cover(target string, isDir bool) error {
	source := coverFile
	if isDir {
		source = coverFolder
	}
	v, err := open(source, target)
	if err != nil {
		return err
	}
	defer unix.Close(v.fd)
	return unix.MoveMount(v.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
