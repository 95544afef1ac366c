package weightpublisher

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/pipeline"
)

// counters of the weights that are published; rondo_handler_seconds has the time that it takes.
// Labels are nothing that grows with policies.
type counters struct {
	versions *prometheus.CounterVec
	bytes    *prometheus.CounterVec
}

// What counters.bytes counts.
const (
	bytesOfFiles  = "files"
	bytesOfDeltas = "deltas"
)

func newCounters(r prometheus.Registerer) (m counters, err error) {
	m.versions, err = pipeline.ShareMetric(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_weights_versions_total", Help: "Submitted versions of weights by outcome: published, rejected."},
		[]string{"outcome"}))
	if err != nil {
		return m, err
	}
	m.bytes, err = pipeline.ShareMetric(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rondo_weights_bytes_total",
		Help: "Bytes of published versions of weights: files, and the deltas that lead to them."}, []string{"of"}))
	return m, err
}

// count counts what was stated of a submission.
func (m counters) count(submission events.Event, stated events.Event) error {
	if m.versions == nil || submission.Type != events.WeightsSubmittedType || stated.Run != events.Catalogue {
		return nil // told to a run
	}
	if stated.Type == events.WeightsRejectedType {
		m.versions.WithLabelValues("rejected").Inc()
		return nil
	}
	submitted, err := events.Data[events.WeightsSubmitted](submission)
	if err != nil {
		return err
	}
	m.versions.WithLabelValues("published").Inc()
	for _, file := range submitted.Files {
		m.bytes.WithLabelValues(bytesOfFiles).Add(float64(file.Blob.Size))
	}
	return nil
}

// countDelta counts a delta that was made; again, where a publisher that died is repeated.
func (m counters) countDelta(bytes int64) {
	if m.bytes != nil {
		m.bytes.WithLabelValues(bytesOfDeltas).Add(float64(bytes))
	}
}
