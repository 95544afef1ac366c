package parts

// A stream is cut where a rolling hash of its last 64 bytes has zeros in its upper bits:
// that depends on what is there and not on how much came before, so an insertion moves the
// next cut and none behind it.

// cutMask leaves one place to cut in 2^20 bytes, on average.
const cutMask = uint64(1<<20-1) << 44

// gear has a number for each byte. They decide where streams are cut and never change: another
// table shares no part with what is stored.
var gear = func() (table [256]uint64) {
	state := uint64(0x9e3779b97f4a7c15)
	for i := range table {
		state += 0x9e3779b97f4a7c15 // SplitMix64
		mixed := (state ^ state>>30) * 0xbf58476d1ce4e5b9
		mixed = (mixed ^ mixed>>27) * 0x94d049bb133111eb
		table[i] = mixed ^ mixed>>31
	}
	return table
}()

// rolling is the hash of the last bytes that were scanned.
type rolling struct{ sum uint64 }

// cut gives how many of the pending bytes make a part, 0 where more are needed to tell. Those that
// were scanned are not scanned again.
func (r *rolling) cut(pending []byte, scanned *int) int {
	if *scanned == 0 {
		r.sum = 0
		*scanned = minPart - 64 // the hash reaches back as far
	}
	end := min(len(pending), maxPart)
	for i := *scanned; i < end; i++ {
		r.sum = r.sum<<1 + gear[pending[i]]
		if i >= minPart && r.sum&cutMask == 0 {
			return i + 1
		}
	}
	if *scanned = max(*scanned, end); end == maxPart {
		return maxPart
	}
	return 0
}
