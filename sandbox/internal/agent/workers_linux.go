package agent

import (
	"runtime"
	"sync"

	"github.com/rondo-rl/rondo/sandbox/internal/jail"
)

const (
	// Commands are started, and files read, on threads that have no capabilities any more. Their number is fixed: a sandbox whose
	// process limit is used up must still serve.
	workerThreads = 6
	// The runtime never lets a thread go, so what is started here is there when the limit on tasks is reached.
	spareThreads = 12
)

// workers runs functions on threads that cannot do more than the sandbox's commands.
type workers struct {
	jobs chan func()
}

func startWorkers(dropCapabilities bool) (*workers, error) {
	w := &workers{jobs: make(chan func(), queue)}
	ready := make(chan error, workerThreads)
	for range workerThreads {
		go func() {
			runtime.LockOSThread()
			if dropCapabilities {
				if err := jail.DropCapabilities(); err != nil {
					ready <- err
					return
				}
			}
			ready <- nil
			for job := range w.jobs {
				job()
			}
		}()
	}
	for range workerThreads {
		if err := <-ready; err != nil {
			return nil, err
		}
	}
	return w, nil
}

// do runs a job and waits for it.
func (w *workers) do(job func()) {
	done := make(chan struct{})
	w.jobs <- func() {
		defer close(done)
		job()
	}
	<-done
}

// warmThreads makes the runtime start the threads that it could need later.
func warmThreads() {
	var started sync.WaitGroup
	release := make(chan struct{})
	started.Add(spareThreads)
	for range spareThreads {
		go func() {
			runtime.LockOSThread() // a thread of its own
			started.Done()
			<-release
			runtime.UnlockOSThread()
		}()
	}
	started.Wait()
	close(release)
}
