package export

import (
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/parquet-go/parquet-go"
)

// writeParquet writes the rows as a Parquet file with a group for every 10,000 rows,
// which is what it holds in memory. Times have microseconds, which every reader knows.
func writeParquet(w io.Writer, columns []Column, rows iter.Seq[*row]) error {
	group := parquet.Group{}
	for _, c := range columns {
		group[c.Name] = parquet.Optional(parquet.Compressed(node(c.Kind), &parquet.Zstd))
	}
	schema := parquet.NewSchema("attempts", group)
	at := map[string]int{} // columns of a group are sorted by name
	for i, path := range schema.Columns() {
		if len(path) != 1 {
			return fmt.Errorf("column %q has %d parts", path, len(path))
		}
		at[path[0]] = i
	}
	out := parquet.NewGenericWriter[any](w, schema, parquet.MaxRowsPerRowGroup(10_000), parquet.CreatedBy("berth", "", ""))
	line := make(parquet.Row, len(columns))
	for r := range rows {
		for _, c := range columns {
			n := at[c.Name]
			line[n] = value(c.get(r)).Level(0, 1, n)
			if line[n].IsNull() {
				line[n] = line[n].Level(0, 0, n)
			}
		}
		if _, err := out.WriteRows([]parquet.Row{line}); err != nil {
			return err
		}
	}
	return out.Close()
}

func node(k Kind) parquet.Node {
	switch k {
	case Integer:
		return parquet.Int(64)
	case Number:
		return parquet.Leaf(parquet.DoubleType)
	case Truth:
		return parquet.Leaf(parquet.BooleanType)
	case Time:
		return parquet.Timestamp(parquet.Microsecond)
	default:
		return parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
	}
}

func value(v any) parquet.Value {
	switch v := v.(type) {
	case string:
		return parquet.ByteArrayValue([]byte(v))
	case int64:
		return parquet.Int64Value(v)
	case float64:
		return parquet.DoubleValue(v)
	case bool:
		return parquet.BooleanValue(v)
	case time.Time:
		return parquet.Int64Value(v.UnixMicro())
	default:
		return parquet.NullValue()
	}
}
