package runfile

// DefaultDiskMB is what sandboxes may write, in MiB, in runs that say nothing of it. It lies in the
// machine's memory; more lies on a disk.
const DefaultDiskMB = 256

const maxDisk Size = 1 << 40

// DiskMB is what the sandboxes of a task may write that asks for so many MiB, 0 for as much as
// there is. It answers 0 for DefaultDiskMB.
func (l Limits) DiskMB(asked int) int {
	disk := int(l.Disk >> 20)
	if asked > 0 {
		disk = min(disk, asked)
	}
	if disk <= DefaultDiskMB {
		return 0
	}
	return disk
}

func (l Limits) validateDisk(check func(ok bool, format string, args ...any)) {
	check(l.Disk == 0 || l.Disk > DefaultDiskMB<<20 && l.Disk <= maxDisk,
		"limits.disk %s: must be more than %s and at most %s; without it it is %[2]s", l.Disk,
		Size(DefaultDiskMB<<20), maxDisk)
}
