# What every function gives.
experiment "functions" {
  datasets    = [dataset.tasks]
  environment = environment.box
  agent       = agent.loop
}

dataset "tasks" {
  format = "harbor"
  path   = "tasks"
}

environment "box" {
  plugin = "box"
}

agent "loop" {
  plugin = "loop"
  config {
    extra = {
      text     = [chomp("a\n"), lower("A"), upper("a"), title("a b"), trim("xax", "x"), trimprefix("ab", "a"), trimsuffix("ab", "b"), trimspace(" a "), strrev("ab"), substr("abc", 1, 1)]
      match    = [regex("[a-z]+", "12ab"), regexall("[0-9]", "a1b2"), replace("abc", "b", "x"), regexreplace("a1b2", "([0-9])", "<$1>"), startswith("ab", "a"), endswith("ab", "a"), strcontains("abc", "bc")]
      lines    = [split(",", "a,b"), join("-", ["a", "b"]), indent(2, "a\nb"), format("%s %03d %.1f %q", "a", 7, 2.5, "q"), length("äb"), length([1, 2]), length({ a = 1 })]
      number   = [abs(-1), ceil(1.2), floor(1.8), max(1, 3), min(1, 3), parseint("ff", 16), pow(2, 10), signum(-4), log(8, 2)]
      lists    = [chunklist([1, 2, 3], 2), coalesce(null, "a"), coalescelist([], ["a"]), compact(["a", ""]), concat([1], [2]), contains(["a"], "a"), distinct(["a", "a"]), element(["a"], 0), flatten([[1], [2]]), index(["a", "b"], "b"), range(3), reverse([1, 2]), slice([1, 2, 3], 1, 2), sort(["b", "a"])]
      maps     = [keys({ b = 1, a = 2 }), values({ b = 1, a = 2 }), lookup({ a = 1 }, "b", 7), merge({ a = 1 }, { b = 2 }), zipmap(["a"], [1])]
      sets     = [setproduct(["a"], ["b", "c"]), setunion(["a"], ["b"]), setintersection(["a", "b"], ["b"]), setsubtract(["a", "b"], ["b"]), toset(["b", "a", "a"])]
      convert  = [tostring(1), tonumber("1"), tobool("true"), tolist(["a"]), tomap({ a = 1 })]
      encode   = [jsondecode("{\"a\": [1, null]}"), jsonencode({ a = 1 }), yamldecode("a: [1, x, ~]\nb: yes"), csvdecode("a,b\n1,2\n"), base64encode("a"), base64decode("YQ==")]
      files    = [file("prompts/system.txt"), fileexists("prompts/system.txt"), fileexists("prompts/none.txt"), glob("prompts/*.txt"), glob("**/*.txt"), basename("a/b"), dirname("a/b"), pathexpand("~/x"), pathexpand("~x")]
      hosts    = [env("REGION"), env("NOT_SET", "default"), env("NOT_SET", null)]
      attempts = [try(jsondecode("{"), "fallback"), can(jsondecode("{")), can(1)]
      control  = <<-EOT
        %{for x in ["a", "b"]~}
        ${x}
        %{endfor~}
      EOT
    }
  }
}
