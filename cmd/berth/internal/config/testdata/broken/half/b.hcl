dataset "t" {
  fromat = "harbor"
}

dataset "t" {
}
