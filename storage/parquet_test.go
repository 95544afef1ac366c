package storage_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/rondo-rl/rondo/storage"
)

func parquetOfMessages(t *testing.T, trajectories ...*storage.Trajectory) []byte {
	t.Helper()
	var out bytes.Buffer
	p, err := storage.NewMessageParquet(&out)
	if err != nil {
		t.Fatal(err)
	}
	for _, trajectory := range trajectories {
		if err := p.Add(trajectory); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func readParquetWithPyarrow(t *testing.T, data []byte) (read pyarrowFile) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.parquet")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(pyarrow(t, "parquet", path), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// TestPyarrowReadsParquetMessages holds a Parquet file of several trajectories against the Arrow files of the same ones, both as
// another library reads them.
func TestPyarrowReadsParquetMessages(t *testing.T) {
	second := makeTrajectory(2, 0) // rows without tokens: empty lists
	second.Rollout, second.TextOnly = "g000123-5", true
	trajectories := []*storage.Trajectory{makeTrajectory(5, 30), second, makeTrajectory(1, 1)}
	read := readParquetWithPyarrow(t, parquetOfMessages(t, trajectories...))
	var want []map[string]any
	var types map[string]string
	for _, trajectory := range trajectories {
		arrow := readWithPyarrow(t, encodeTrajectory(t, trajectory))
		want, types = append(want, arrow.Rows...), arrow.Types
	}
	for _, row := range want {
		row["duration_ns"] = row["duration"]
		delete(row, "duration")
	}
	if !reflect.DeepEqual(read.Rows, want) {
		t.Errorf("%d rows, want %d; the first is\n%v, want\n%v", len(read.Rows), len(want), read.Rows[0], want[0])
	}
	types["duration_ns"] = "int64"
	delete(types, "duration")
	for name, is := range read.Types {
		if is = strings.Replace(strings.Replace(is, "element: ", "item: ", 1), " not null", "", 1); is != types[name] {
			t.Errorf("type of %s is %s, want %s", name, is, types[name])
		}
	}
	if read.Metadata["kind"] != "trajectory" || read.Metadata["schema_version"] != "1" || read.Batches != 1 {
		t.Errorf("%d row groups, metadata %v", read.Batches, read.Metadata)
	}
}

func TestPyarrowReadsParquetSamples(t *testing.T) {
	batch := makeBatch(7, 40)
	batch.MicroBatches = 0
	for i := range batch.Samples {
		batch.Samples[i].MicroBatch = -1
	}
	batch.Samples[3].PolicyVersions, batch.Samples[3].Turns = nil, nil
	var out bytes.Buffer
	p, err := storage.NewSampleParquet(&out)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Add(batch.Samples); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	read, want := readParquetWithPyarrow(t, out.Bytes()), readWithPyarrow(t, encodeBatch(t, batch))
	if !reflect.DeepEqual(read.Rows, want.Rows) {
		t.Errorf("rows are\n%v, want\n%v", read.Rows, want.Rows)
	}
	batch.Samples[0].Advantages = nil
	if err := p.Add(batch.Samples[:1]); err == nil || !strings.Contains(err.Error(), "advantages") {
		t.Errorf("a sample whose parts disagree: %v", err)
	}
}

// TestParquetRowGroups: a file of any size takes the memory of one row group.
func TestParquetRowGroups(t *testing.T) {
	var out bytes.Buffer
	p, err := storage.NewMessageParquet(&out)
	if err != nil {
		t.Fatal(err)
	}
	const rollouts, size = 48, 4 << 20
	for i := range rollouts {
		err := p.Add(&storage.Trajectory{Rollout: fmt.Sprint(i), DispatchVersion: -1, Messages: []storage.Message{{Role: "user", PolicyVersion: -1, Content: strings.Repeat("x", size)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if memory.HeapInuse > rollouts*size { // all of it at once
		t.Errorf("%d MiB in use", memory.HeapInuse>>20)
	}
	reader, err := file.NewParquetReader(bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if reader.NumRows() != rollouts || reader.NumRowGroups() < 5 {
		t.Errorf("%d rows in %d row groups", reader.NumRows(), reader.NumRowGroups())
	}
	for i := range reader.NumRowGroups() {
		if n := reader.MetaData().RowGroup(i).TotalByteSize(); n > 64<<20 {
			t.Errorf("row group %d has %d bytes", i, n)
		}
	}
}

func TestEmptyParquet(t *testing.T) {
	reader, err := file.NewParquetReader(bytes.NewReader(parquetOfMessages(t)))
	if err != nil {
		t.Fatal(err)
	}
	if reader.NumRows() != 0 || reader.MetaData().Schema.NumColumns() != 20 {
		t.Errorf("%d rows, %d columns", reader.NumRows(), reader.MetaData().Schema.NumColumns())
	}
}
