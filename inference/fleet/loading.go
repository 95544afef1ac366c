package fleet

import (
	"errors"
	"net/http"
	"syscall"
	"time"

	"github.com/rondo-rl/rondo/inference"
)

// loading reports whether a server that has just failed may still be loading its model.
func (f *Fleet) loading(failure *inference.Failure, at target) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mayLoad(failure, time.Now(), at)
}

// mayLoad reports whether a failure is that of a server which loads its model: SGLang and llama.cpp
// answer 503 then, and vLLM does not listen yet. The caller holds the lock.
func (f *Fleet) mayLoad(failure *inference.Failure, now time.Time, among ...target) bool {
	if failure.Status == http.StatusServiceUnavailable {
		return true
	}
	for _, t := range among {
		if errors.Is(failure.Err, syscall.ECONNREFUSED) && !t.refuses.IsZero() && now.Sub(t.refuses) < f.opts.Loading {
			return true
		}
	}
	return false
}
