package fetch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ratesName is the file of a folder's rates: it outlives the process, since only a folder's first
// version is always read whole.
const ratesName = ".rates.json"

const (
	// leastMeasured is how many bytes at least tell a rate: fewer tell of latency.
	leastMeasured = 64 << 20
	// retryGrowth is how much faster deltas are taken to be with each version that is read whole
	// instead, so that they are tried again: the machine may have been busy.
	retryGrowth = 1.02
)

// rates are how fast the last transfers were, in bytes per second; 0: not known.
type rates struct {
	Store float64 `json:"store"` // what was read
	Make  float64 `json:"make"`  // files that were made of deltas and verified
}

func (f *Folder) ratesPath() string { return filepath.Join(f.dir, ratesName) }

// readRates are the rates that are known; none where the file is missing or no use.
func (f *Folder) readRates() (r rates) {
	data, err := os.ReadFile(f.ratesPath())
	if err != nil || json.Unmarshal(data, &r) != nil || r.Store < 0 || r.Make < 0 {
		return rates{}
	}
	return r
}

// note keeps rates. Without them a version is read as its size says, so that an
// error is none of the fetch's.
func (f *Folder) note(change func(*rates)) {
	r := f.readRates()
	change(&r)
	if data, err := json.Marshal(r); err == nil {
		_ = os.WriteFile(f.ratesPath(), append(data, '\n'), 0o644)
	}
}

// measured gives a rate to keep, if so many bytes tell one.
func (f *Folder) measured(bytes int64, took time.Duration, keep func(*rates, float64)) {
	if bytes >= f.least && took > 0 {
		f.note(func(r *rates) { keep(r, float64(bytes)/took.Seconds()) })
	}
}

func storeRate(r *rates, rate float64) { r.Store = rate }
func makeRate(r *rates, rate float64)  { r.Make = rate }

// slower says why a version is read whole to which deltas of so many bytes lead; "" where they are
// faster, or a rate is not known.
func (r rates) slower(deltas, missing int64) string {
	if r.Store == 0 || r.Make == 0 {
		return ""
	}
	whole := float64(missing) / r.Store
	made := float64(deltas)/r.Store + float64(missing)/r.Make
	if made <= whole {
		return ""
	}
	return fmt.Sprintf("deltas would take %.1f s, and the files take %.1f s: the store gives %.0f MB/s, and this machine makes files of deltas at %.0f MB/s",
		made, whole, r.Store/1e6, r.Make/1e6)
}
