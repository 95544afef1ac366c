package events

// CapacityMeasured says how many turns the inference servers of a run can sample at once. A generator states it in runs with `in_flight: auto`, at most once in ten
// seconds, when the number has changed noticeably.
type CapacityMeasured struct {
	Turns int `json:"turns" jsonschema:"minimum=1,maximum=100000"`
	// Servers are what that follows from, by the addresses in the run's configuration.
	Servers []ServerCapacity `json:"servers,omitempty"`
}

// ServerCapacity is what a generator has found of one server.
type ServerCapacity struct {
	URL   string `json:"url"`
	Turns int    `json:"turns"`
	// Measured: it says itself how much it has to do. Of other servers the number is what the generators' ramp allows, or their slots.
	Measured bool    `json:"measured,omitempty"`
	Running  int     `json:"running,omitempty"`  // requests
	Waiting  int     `json:"waiting,omitempty"`  // requests
	KVUsage  float64 `json:"kv_usage,omitempty"` // part of the memory for keys and values, 0 to 1
}
