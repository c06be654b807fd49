# Writes priors.csv and cells.csv with limma, the reference implementation of moderated variances (Smyth 2004).
#
#   Rscript tests/golden/limma/make_limma.R        R and limma (Debian: r-bioc-limma); tests read the files only
#
# 5,000 cells of 5 launches. Their logarithms come from a generator with exact integer arithmetic, so that
# tests/unit/test_limma.py computes the same values: x <- 16807 x mod (2^31 - 1), from 20261125, and quantiles of x / (2^31 - 1).
library(limma)

NUM_CELLS <- 5000
NUM_LAUNCHES <- 5
D0 <- 4 # true degrees of freedom of the prior
S0 <- 4e-4 # true variance at the middle level
SLOPE <- -0.4 # of log variance over log time
KEPT <- seq(1, NUM_CELLS, by = 25)

state <- 20261125
uniform <- function(n) {
  values <- numeric(n)
  for (i in seq_len(n)) {
    state <<- (16807 * state) %% 2147483647
    values[i] <- state / 2147483647
  }
  values
}

level <- seq(-3, 3, length.out = NUM_CELLS)
s2 <- S0 * exp(SLOPE * level) * D0 / qchisq(uniform(NUM_CELLS), D0)
noise <- matrix(qnorm(uniform(NUM_CELLS * NUM_LAUNCHES)), NUM_CELLS, NUM_LAUNCHES, byrow = TRUE)
logs <- 0.01 + sqrt(s2) * noise # of ratios: the mean is tested against 0

fit <- lmFit(logs, matrix(1, NUM_LAUNCHES, 1))
write_priors <- function(name, moderated) {
  data.frame(
    trend = name, df_prior = moderated$df.prior, s2_prior_first = moderated$s2.prior[1],
    s2_prior_last = tail(moderated$s2.prior, 1)
  )
}
plain <- eBayes(fit)
trended <- squeezeVar(fit$sigma^2, fit$df.residual, covariate = level)
priors <- rbind(
  write_priors("none", plain),
  data.frame(
    trend = "level", df_prior = trended$df.prior, s2_prior_first = trended$var.prior[1],
    s2_prior_last = tail(trended$var.prior, 1)
  )
)
cells <- data.frame(
  cell = KEPT - 1, mean = fit$coefficients[KEPT], s2 = fit$sigma[KEPT]^2, s2_post = plain$s2.post[KEPT],
  df_total = plain$df.total[KEPT], t = plain$t[KEPT], p_value = plain$p.value[KEPT],
  p_adjusted = p.adjust(plain$p.value, "BH")[KEPT], s2_prior_trend = trended$var.prior[KEPT],
  s2_post_trend = trended$var.post[KEPT]
)
folder <- dirname(sub("--file=", "", grep("--file=", commandArgs(), value = TRUE)))
options(digits = 17)
write.csv(format(priors, digits = 15), file.path(folder, "priors.csv"), row.names = FALSE, quote = FALSE)
write.csv(format(cells, digits = 15, trim = TRUE), file.path(folder, "cells.csv"), row.names = FALSE, quote = FALSE)
