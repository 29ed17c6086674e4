experiment "x" {
  datasets = [dataset.t
