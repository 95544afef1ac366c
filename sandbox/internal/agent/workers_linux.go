package agent

import (
	"runtime"
	"sync"
)

const (
	// Commands are started, and files read, on threads that have no capabilities any more. Their
	// number is fixed: a sandbox whose process limit is used up must still serve.
	workerThreads = 5
	// The runtime never lets a thread go, so what is started here is there when the
	// limit on tasks is reached.
	spareThreads = 12
)

// workers runs functions on threads that cannot do more than the sandbox's commands.
type workers struct {
	jobs chan func()
}

// startWorkers starts threads and restricts each of them before its first job.
func startWorkers(threads int, restrict func() error) (*workers, error) {
	w := &workers{jobs: make(chan func(), queue)}
	ready := make(chan error, threads)
	for range threads {
		go func() {
			runtime.LockOSThread()
			if err := restrict(); err != nil {
				ready <- err
				return
			}
			ready <- nil
			for job := range w.jobs {
				job()
			}
		}()
	}
	for range threads {
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
